//! How the programs of a worker are shut in: what was asked for, what the kernel can do, and what is
//! hidden from them.

use crate::runner::exec::Walls;
use std::path::{Path, PathBuf};
use toolfleet_io::config::Checked;
use toolfleet_io::isolation;
use toolfleet_proto::isolation::{Isolation, Level};
use toolfleet_proto::manifest::Fault;

/// For all programs of a worker.
#[derive(Clone, Debug)]
pub struct ShutIn {
    asked: Isolation,
    kernel: Level,
    /// The worker's own: secrets, passwords, the folders of all attempts.
    hidden: Vec<PathBuf>,
    walls: Walls,
}

impl ShutIn {
    /// As the configuration has it.
    pub fn of(checked: &Checked, scratch_root: &Path) -> ShutIn {
        let config = &checked.config;
        let worker = &config.worker;
        let secrets = [
            &checked.file,
            &worker.secrets_dir,
            &config.nats.creds_file,
            &config.redis.password_file,
        ];
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        let mut hidden: Vec<PathBuf> = secrets.into_iter().flatten().filter_map(absolute).collect();
        hidden.push(scratch_root.into());
        let walls = Walls::of_worker(&hidden, &worker.readable, &worker.writable);
        ShutIn { asked: worker.isolation, kernel: isolation::level(), hidden, walls }
    }

    /// As a worker without any configuration has it.
    pub fn available(scratch_root: &Path) -> ShutIn {
        let hidden = vec![scratch_root.into()];
        let walls = Walls::of_worker(&hidden, &[], &[]);
        ShutIn { asked: Isolation::Available, kernel: isolation::level(), hidden, walls }
    }

    /// How far it goes.
    pub fn reached(&self) -> Level {
        self.asked.reached(self.kernel)
    }

    /// Why no program may run here, where more was asked for than the kernel can do.
    pub fn fault(&self) -> Option<Fault> {
        self.asked.is_refused(self.kernel).then(|| Fault {
            code: "exec.no-isolation",
            file: "worker.isolation".into(),
            line: None,
            message: format!(
                "isolation is required, and this kernel's is: {}",
                self.kernel.words()
            ),
            mend: "use Linux 6.2 or newer with Landlock, or set worker.isolation to \"available\""
                .into(),
        })
    }

    /// For one tool; `None`: it is not shut in.
    pub fn walls_of(&self, folder: &Path, command: &[String]) -> Option<Walls> {
        let is_any = self.reached() > Level::None;
        is_any.then(|| self.walls.of_tool(folder, command, &self.hidden))
    }

    /// Tells it, once, at the start of a worker with programs.
    pub fn tell(&self) {
        let level = self.reached().words();
        if self.asked == Isolation::Available && self.kernel < Level::Files {
            tracing::warn!(
                level,
                "programs may use what the worker may: the kernel cannot shut them in"
            );
        } else {
            tracing::info!(level, "isolation of programs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_io::config::Config;

    fn shut_in(asked: Isolation, kernel: Level) -> ShutIn {
        ShutIn { asked, kernel, ..ShutIn::available(Path::new("/var/scratch")) }
    }

    #[test]
    fn where_it_is_required_a_kernel_without_it_is_a_fault() {
        let fault = shut_in(Isolation::Required, Level::None).fault().unwrap();
        assert_eq!(fault.code, "exec.no-isolation");
        assert_eq!(fault.message, "isolation is required, and this kernel's is: none");
        assert_eq!(shut_in(Isolation::Required, Level::Files).fault(), None);
        assert_eq!(shut_in(Isolation::Available, Level::None).fault(), None);
    }

    #[test]
    fn a_tool_has_walls_where_the_kernel_can_put_some_up() {
        let has = |asked, kernel| {
            shut_in(asked, kernel).walls_of(Path::new("/usr"), &["sh".into()]).is_some()
        };
        assert!(has(Isolation::Available, Level::FilesButTruncation));
        assert!(!has(Isolation::Available, Level::None));
        assert!(!has(Isolation::Off, Level::FilesAndSignals));
    }

    #[test]
    fn what_the_worker_keeps_to_itself_is_hidden() {
        let mut config = Config::default();
        config.worker.secrets_dir = Some("/etc/fleet/secrets".into());
        config.nats.creds_file = Some("/etc/fleet/nats.creds".into());
        config.redis.password_file = Some("/etc/fleet/password".into());
        let mut checked = toolfleet_io::config::check(config).unwrap();
        checked.file = Some("/etc/fleet/toolfleet.toml".into());
        let hidden = ShutIn::of(&checked, Path::new("/var/scratch")).hidden;
        let names = ["toolfleet.toml", "secrets", "nats.creds", "password"];
        let mut expected: Vec<PathBuf> =
            names.iter().map(|name| Path::new("/etc/fleet").join(name)).collect();
        expected.push("/var/scratch".into());
        assert_eq!(hidden, expected);
    }
}
