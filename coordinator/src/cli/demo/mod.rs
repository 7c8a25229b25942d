//! `toolfleet demo`: two model messages over a fleet of its own, and what goes wrong on the way.

mod fleet;
mod scene;
mod tally;

use super::output::line;
use super::terminal::{Style, Target};
use fleet::Fleet;
use scene::Stage;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tally::Tally;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `toolfleet demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Folder of the example tools and messages
    #[arg(long, value_name = "DIR", default_value = "examples")]
    pub examples: PathBuf,
}

/// Starts a fleet, hands two messages in, breaks a worker on the way, shows every result, the spend and
/// a trace, and ends the fleet.
///
/// The last line on standard output is `demo: N calls, N results, 0 lost`. Exit code 0 when every call
/// of the messages has exactly one result, else 1 with the reason and the end of the fleet's log on
/// standard error. A signal ends the fleet as well.
pub async fn run(args: DemoArgs) -> ExitCode {
    match demonstrate(&args).await {
        Ok(tally) => {
            let style = Style::of(Target::Out);
            line(&style.dim(
                "next: `./dev up` leaves a fleet running; then `toolfleet call weather --input \
                 '{\"city\": \"Oslo\", \"days\": 2}'`, `toolfleet turn examples/turns/trip.openai.json`, \
                 `toolfleet trace ID`; the README goes on from there",
            ));
            line(&format!("demo: {tally}"));
            if tally.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "demo: failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demonstrate(args: &DemoArgs) -> anyhow::Result<Tally> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut fleet = Fleet::start(&args.examples.join("tools"))?;
    let played = tokio::select! {
        played = play(&mut fleet, args) => played,
        _ = terminate.recv() => Err(anyhow::anyhow!("stopped by a signal")),
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    let stopped = fleet.stop().await;
    let told = played.and_then(|tally| stopped.map(|()| tally));
    told.map_err(|error| error.context(fleet.log_tail()))
}

async fn play(fleet: &mut Fleet, args: &DemoArgs) -> anyhow::Result<Tally> {
    let ready = fleet.ready().await?;
    let style = Style::of(Target::Out);
    line(&format!("a coordinator and two workers at {}", ready.http));
    let stage = Stage::new(&ready, style)?;
    let turns = args.examples.join("turns");

    line(&style.bold("\n1. an OpenAI message: six calls, one with bad arguments, one that fails"));
    let trip = Stage::message(&turns.join("trip.openai.json"))?;
    let mut tally = stage.play(&trip, "trip").await?;

    line(&style.bold(
        "\n2. an Anthropic message: five calls; the worker that writes the report is killed, one call is cancelled",
    ));
    let procurement = Stage::message(&turns.join("procurement.anthropic.json"))?;
    let meddling = tokio::spawn(stage.clone().meddle(ready.clone(), "procurement"));
    tally = tally.and(stage.play(&procurement, "procurement").await?);
    meddling.await??;

    line(&style.bold("\n3. the same message again, as after a client's time-out: recorded results, nothing runs twice"));
    stage.play_again(&procurement, "procurement").await?;

    line(&style.bold("\n4. what it cost, and the trace of the second message"));
    stage.spend().await?;
    stage.trace("procurement").await?;
    Ok(tally)
}
