//! `toolfleet topology`.

use super::exit;
use super::output::{line, table};
use serde_json::{Value, json};
use std::process::ExitCode;
use toolfleet_io::broker::Broker;
use toolfleet_io::config::Checked;
use toolfleet_io::topology::{self, Part};
use toolfleet_proto::topology::Prefix;

/// Arguments of `toolfleet topology`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopologyArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Address of the broker
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Print what an operator must make, as requests to the server's own API
    Export {
        /// Pools that need a consumer
        #[arg(long = "pool", value_name = "NAME", default_value = "default")]
        pools: Vec<String>,
    },
}

impl TopologyArgs {
    /// What was given on the command line, in the shape of the configuration.
    pub(crate) fn flags(&self) -> Value {
        self.nats.as_ref().map_or_else(|| json!({}), |url| json!({"nats": {"url": url}}))
    }
}

/// Runs the command.
pub(crate) async fn run(args: TopologyArgs, checked: Checked, is_json: bool) -> ExitCode {
    let prefix = match Prefix::parse(&checked.config.fleet.prefix) {
        Ok(prefix) => prefix,
        Err(error) => return exit::complain(&error, exit::CONFIG),
    };
    if let Some(Action::Export { pools }) = args.action {
        let requests = topology::export(&prefix, &checked.limits, &pools);
        let list: Vec<Value> = requests
            .into_iter()
            .map(|(subject, config)| json!({"subject": subject, "request": config}))
            .collect();
        line(&serde_json::to_string_pretty(&list).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let broker = match Broker::connect(&checked.config.nats, prefix, "toolfleet topology").await {
        Ok(broker) => broker,
        Err(error) => return exit::complain(&error, exit::UNREACHABLE),
    };
    let parts = match topology::look(&broker, &checked.limits).await {
        Ok(parts) => parts,
        Err(error) => return exit::complain(&error, exit::UNREACHABLE),
    };
    show(&broker, &parts, is_json);
    let is_well = parts.iter().all(|part| part.faults.is_empty());
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(exit::CONFIG) }
}

fn show(broker: &Broker, parts: &[Part], is_json: bool) {
    let server = broker.client().server_info();
    if is_json {
        let value =
            json!({"server": server.server_name, "version": server.version, "parts": parts});
        line(&value.to_string());
        return;
    }
    line(&format!("nats-server {} ({})", server.version, server.server_name));
    let rows: Vec<Vec<String>> = parts
        .iter()
        .map(|part| {
            let state = if part.faults.is_empty() { "as it must be" } else { "FAULTY" };
            vec![
                part.kind.to_owned(),
                part.name.clone(),
                part.messages.to_string(),
                part.bytes.to_string(),
                part.holds.clone(),
                state.to_owned(),
            ]
        })
        .collect();
    table(&["KIND", "NAME", "MESSAGES", "BYTES/UNACKED", "HOLDS", "STATE"], &rows);
    parts.iter().flat_map(|part| &part.faults).for_each(|fault| line(&format!("fault: {fault}")));
}
