//! `toolfleet completions SHELL`.

use super::Args;
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::io::Write as _;
use std::process::ExitCode;

/// Arguments of `toolfleet completions`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script that a shell reads.
pub(crate) fn run(args: &CompletionsArgs) -> ExitCode {
    // A reader that is gone is no error.
    let _ = std::io::stdout().lock().write_all(&script(args.shell));
    ExitCode::SUCCESS
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "toolfleet", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let script = String::from_utf8(script(shell)).unwrap();
            for command in ["turn", "watch", "bench", "completions"] {
                assert!(script.contains(command), "{shell}: {command}");
            }
        }
    }
}
