//! `toolfleet config show`.

use super::output::line;
use serde_json::Value;
use std::process::ExitCode;
use toolfleet_io::broker::without_password;
use toolfleet_io::config::Checked;

/// Arguments of `toolfleet config`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Print every setting as it holds, defaults included
    Show,
}

/// Runs the command. Secrets are files in the configuration, so that nothing of it must be hidden
/// but a password in an address.
pub(crate) fn run(args: &ConfigArgs, checked: &Checked, is_json: bool) -> ExitCode {
    let Action::Show = args.action;
    let mut value = serde_json::to_value(&checked.config).unwrap_or_default();
    for (section, key) in [("nats", "url"), ("redis", "url")] {
        if let Some(url) = value[section][key].as_str() {
            value[section][key] = without_password(url).into();
        }
    }
    if is_json {
        line(&value.to_string());
        return ExitCode::SUCCESS;
    }
    for (section, keys) in value.as_object().into_iter().flatten() {
        show(section, keys);
    }
    ExitCode::SUCCESS
}

/// Prints one table, and below it those that it holds.
fn show(name: &str, keys: &Value) {
    let is_table = |setting: &Value| setting.is_object();
    let of_keys: Vec<_> = keys.as_object().into_iter().flatten().collect();
    if of_keys.iter().any(|(_, setting)| !is_table(setting)) {
        line(&format!("[{name}]"));
        for (key, setting) in of_keys.iter().filter(|(_, setting)| !is_table(setting)) {
            // TOML has no null: what is not set is shown as a comment.
            let text = if setting.is_null() {
                format!("# {key} is not set")
            } else {
                format!("{key} = {setting}")
            };
            line(&text);
        }
        line("");
    }
    for (key, setting) in of_keys.into_iter().filter(|(_, setting)| is_table(setting)) {
        show(&format!("{name}.{key}"), setting);
    }
}
