//! One verb set over every kind of child.

use super::program::Program;
use super::role::Role;
use std::process::ExitStatus;
use toolfleet_io::child::{Error, NatsOptions, NatsServer, Observer, RedisOptions, RedisServer};

/// A child that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Up {
    /// Its process id.
    pub(super) pid: u32,
    /// Where its clients find it; empty for a worker.
    pub(super) url: String,
    /// Where its health is told; only a coordinator's.
    pub(super) admin: String,
    /// Its tools; only a worker's.
    pub(super) tools: Vec<String>,
}

/// A child, running or not.
pub(super) enum Member {
    /// The broker.
    Nats {
        /// For the first start.
        options: NatsOptions,
        /// Hears of each process.
        observer: Observer,
        /// From the first start on.
        server: Option<NatsServer>,
    },
    /// The lease store.
    Redis {
        /// For the first start.
        options: RedisOptions,
        /// Hears of each process.
        observer: Observer,
        /// From the first start on.
        server: Option<RedisServer>,
    },
    /// A coordinator or a worker.
    Program(Program),
}

impl Member {
    /// Which it is.
    pub(super) fn role(&self) -> Role {
        match self {
            Member::Nats { .. } => Role::Nats,
            Member::Redis { .. } => Role::Redis,
            Member::Program(program) => program.role(),
        }
    }

    /// Starts it, or starts it again on its port, and waits until it is ready.
    pub(super) async fn start(&mut self) -> Result<Up, Error> {
        match self {
            Member::Nats { options, observer, server } => {
                let server = if let Some(server) = server {
                    server.restart().await?;
                    server
                } else {
                    let observer = Some(observer.clone());
                    server.insert(NatsServer::start_observed(options.clone(), observer).await?)
                };
                Ok(Up { pid: server.pid(), url: server.url(), ..Up::default() })
            }
            Member::Redis { options, observer, server } => {
                let server = if let Some(server) = server {
                    server.restart().await?;
                    server
                } else {
                    let observer = Some(observer.clone());
                    server.insert(RedisServer::start_observed(options.clone(), observer).await?)
                };
                Ok(Up { pid: server.pid(), url: server.url(), ..Up::default() })
            }
            Member::Program(program) => {
                let ready = program.start().await?;
                let (url, admin, tools) = (ready.http, ready.admin, ready.tools);
                Ok(Up { pid: ready.pid, url, admin, tools })
            }
        }
    }

    /// Resolves when it has ended; at once where it never started.
    pub(super) async fn wait(&mut self) -> Result<ExitStatus, Error> {
        match self {
            Member::Nats { server: Some(server), .. } => server.wait().await,
            Member::Redis { server: Some(server), .. } => server.wait().await,
            Member::Program(program) => match program.process() {
                Some(process) => process.wait().await,
                None => Ok(ExitStatus::default()),
            },
            Member::Nats { .. } | Member::Redis { .. } => Ok(ExitStatus::default()),
        }
    }

    /// SIGTERM, and SIGKILL after `grace_ms` (servers: after their own grace).
    pub(super) async fn stop(&mut self, grace_ms: u64) -> Result<(), Error> {
        match self {
            Member::Nats { server: Some(server), .. } => server.stop().await.map(drop),
            Member::Redis { server: Some(server), .. } => server.stop().await.map(drop),
            Member::Program(program) => match program.process() {
                Some(process) => process.stop(grace_ms).await.map(drop),
                None => Ok(()),
            },
            Member::Nats { .. } | Member::Redis { .. } => Ok(()),
        }
    }

    /// SIGKILL; resolves when it is gone.
    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        match self {
            Member::Nats { server: Some(server), .. } => server.kill().await.map(drop),
            Member::Redis { server: Some(server), .. } => server.kill().await.map(drop),
            Member::Program(program) => program.kill().await,
            Member::Nats { .. } | Member::Redis { .. } => Ok(()),
        }
    }

    /// The last lines of its newest run.
    pub(super) fn log_tail(&mut self) -> String {
        match self {
            Member::Nats { server, .. } => {
                server.as_ref().map(NatsServer::log_tail).unwrap_or_default()
            }
            Member::Redis { server, .. } => {
                server.as_ref().map(RedisServer::log_tail).unwrap_or_default()
            }
            Member::Program(program) => {
                program.process().map(|process| process.log_tail()).unwrap_or_default()
            }
        }
    }
}
