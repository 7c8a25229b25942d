//! Dead letters: read, requeued as new calls, dropped (CONTRACT 5.8).

use crate::core::admit::Names;
use crate::core::dead_letter;
use crate::service::Coordinator;
use toolfleet_io::broker::Error;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{self, DeadLetter, Job};

/// A dead letter that was found.
pub(crate) struct Found {
    pub(crate) name: CallName,
    pub(crate) letter: DeadLetter,
    /// The job inside it; `None` where a newer build wrote it.
    pub(crate) job: Option<Job>,
}

impl Found {
    /// The names of the call that is requeued from it.
    pub(crate) fn next_names(&self, job: &Job, request_id: String) -> Names {
        let call_id = dead_letter::next_call_id(job);
        let (tenant, execution) = (&self.name.tenant, &self.name.execution);
        Names {
            name: CallName::of_turn(tenant, execution, &job.node, &job.turn, &call_id),
            node: job.node.clone(),
            turn: job.turn.clone(),
            call_id,
            thread: job.caller.as_ref().map(|caller| caller.thread.clone()).unwrap_or_default(),
            request_id,
            is_unnamed: false,
            requeued_from: self.name.call.clone(),
        }
    }
}

impl Coordinator {
    /// The dead letter of a call.
    pub(crate) async fn dead_letter(&self, name: &CallName) -> Result<Option<Found>, Error> {
        let prefix = self.broker.prefix();
        let found =
            self.broker.find_last(&prefix.dead_stream(), &prefix.dead_anywhere(name)).await?;
        let Some(message) = found else { return Ok(None) };
        let letter = wire::read_dead_letter(&message.payload)
            .map_err(|error| Error::Refused(error.to_string()))?;
        let job = wire::read_job(&letter.job).ok();
        Ok(Some(Found { name: name.clone(), letter, job }))
    }

    /// The call that was requeued from a dead letter, and its state; `None`: it was not requeued.
    pub(crate) async fn requeued(
        &self,
        found: &Found,
    ) -> Result<Option<(String, &'static str)>, Error> {
        let Some(job) = &found.job else { return Ok(None) };
        let name = found.next_names(job, String::new()).name;
        if toolfleet_io::ending::read_result(&self.broker, &name).await?.is_some() {
            return Ok(Some((name.call, "done")));
        }
        Ok(match self.open_state(&name).await {
            "waiting" => None,
            state => Some((name.call, state)),
        })
    }

    /// Removes a dead letter. `false`: there is none.
    pub(crate) async fn drop_dead_letter(&self, name: &CallName) -> Result<bool, Error> {
        let prefix = self.broker.prefix();
        let purged = self.broker.purge(&prefix.dead_stream(), &prefix.dead_anywhere(name)).await?;
        Ok(purged > 0)
    }
}
