//! How a fleet is made.

use crate::binaries::{TOOLFLEET, WORKER, binary};
use crate::fleet::{Fleet, Links, Parts};
use crate::http::Http;
use crate::link::Link;
use crate::member::{Member, Recipe};
use crate::servers::{broker_at, clustered, replicate, servers};
use crate::wait::until;
use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use toolfleet_io::child::NatsServer;
use toolfleet_io::fail_point;

/// The folder of a fleet's fail points, in its own.
pub(crate) const FAIL_POINTS: &str = "fail-points";

/// Fleets at the same time: more would starve each other's clocks on a small machine.
static FLEETS: Semaphore = Semaphore::const_new(3);

/// Waits until another fleet may be started. [`Builder::start`] does so by itself.
pub async fn fleet_turn() -> anyhow::Result<SemaphorePermit<'static>> {
    Ok(FLEETS.acquire().await?)
}

/// Clocks that let a test see a lost lease in seconds; they keep every relation of the real ones.
pub const SHORT_CLOCKS: [(&str, &str); 7] = [
    ("TOOLFLEET_LIMITS__LEASE_TTL", "2s"),
    ("TOOLFLEET_LIMITS__LEASE_RENEW", "500ms"),
    ("TOOLFLEET_LIMITS__LEASE_MARGIN", "300ms"),
    ("TOOLFLEET_LIMITS__KILL_GRACE", "300ms"),
    ("TOOLFLEET_LIMITS__ACK_WAIT", "3s"),
    ("TOOLFLEET_LIMITS__CANCEL_GRACE", "500ms"),
    ("TOOLFLEET_LIMITS__DRAIN", "5s"),
];

/// How long a coordinator may take to offer the tools of a worker that is ready.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(30);

struct ExecTool {
    name: String,
    keys: String,
    run_keys: String,
    script: String,
}

/// A fleet that is still to be made: one coordinator and one worker unless said otherwise.
pub struct Builder {
    coordinators: usize,
    workers: usize,
    worker_program: Option<PathBuf>,
    slots: Option<usize>,
    tools: Vec<ExecTool>,
    tool_folders: Vec<PathBuf>,
    env: Vec<(String, String)>,
    env_of: Vec<(String, String, String)>,
    is_linked: bool,
    is_clustered: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            coordinators: 1,
            workers: 1,
            worker_program: None,
            slots: None,
            tools: Vec::new(),
            tool_folders: Vec::new(),
            env: Vec::new(),
            env_of: Vec::new(),
            is_linked: false,
            is_clustered: false,
        }
    }
}

impl Builder {
    /// How many coordinators.
    #[must_use]
    pub fn coordinators(mut self, count: usize) -> Builder {
        self.coordinators = count;
        self
    }

    /// How many workers.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Builder {
        self.workers = count;
        self
    }

    /// Another worker binary than `toolfleet-worker`.
    #[must_use]
    pub fn worker_program(mut self, path: impl Into<PathBuf>) -> Builder {
        self.worker_program = Some(path.into());
        self
    }

    /// Calls at the same time, for each worker.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Builder {
        self.slots = Some(slots);
        self
    }

    /// Adds an `exec` tool: the keys of its manifest beside `description` and `[run]`, and the body
    /// of its shell script. `crm/find` is the tool `find` of the package `crm`.
    #[must_use]
    pub fn exec_tool(self, name: &str, keys: &str, script: &str) -> Builder {
        self.exec_tool_run(name, keys, "", script)
    }

    /// As [`Builder::exec_tool`], with further keys of its `[run]`.
    #[must_use]
    pub fn exec_tool_run(
        mut self,
        name: &str,
        keys: &str,
        run_keys: &str,
        script: &str,
    ) -> Builder {
        self.tools.push(ExecTool {
            name: name.to_owned(),
            keys: keys.to_owned(),
            run_keys: run_keys.to_owned(),
            script: script.to_owned(),
        });
        self
    }

    /// Adds the files of a folder of manifests and programs.
    #[must_use]
    pub fn tools_of(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.tool_folders.push(folder.into());
        self
    }

    /// Sets a variable of every process.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl Into<String>) -> Builder {
        self.env.push((key.to_owned(), value.into()));
        self
    }

    /// Sets a variable of one process, named `worker-0`, `coordinator-1` and the like.
    #[must_use]
    pub fn env_of(mut self, member: &str, key: &str, value: impl Into<String>) -> Builder {
        self.env_of.push((member.to_owned(), key.to_owned(), value.into()));
        self
    }

    /// Each process reaches the broker and the lease store over links of its own, which can be broken.
    #[must_use]
    pub fn linked(mut self) -> Builder {
        self.is_linked = true;
        self
    }

    /// The broker is a cluster of three servers, with three replicas of everything. Not with links.
    #[must_use]
    pub fn clustered(mut self) -> Builder {
        self.is_clustered = true;
        self
    }

    /// Starts everything and waits until each coordinator offers each tool of each worker.
    pub async fn start(self) -> anyhow::Result<Fleet> {
        let turn = fleet_turn().await?;
        let folder = tempfile::Builder::new().prefix("toolfleet-test-").tempdir()?;
        let dir = folder.path();
        self.write_tools(&dir.join("tools"))?;
        let (mut nodes, redis) = if self.is_clustered {
            clustered(dir).await?
        } else {
            let (nats, redis) = servers(dir).await?;
            (vec![nats], redis)
        };
        let urls = nodes.iter().map(NatsServer::url).collect::<Vec<_>>().join(",");
        let fail_points = dir.join(FAIL_POINTS);
        fs::create_dir(&fail_points)?;
        let mut env = self.environment(&urls, &redis.url(), dir);
        env.push((fail_point::FOLDER.to_owned(), fail_points.to_string_lossy().into_owned()));
        let broker = broker_at(&urls).await?;
        if self.is_clustered {
            replicate(&broker).await?;
        }
        let nats = nodes.remove(0);
        let parts = Parts { folder, nats, nodes, redis, broker, turn };
        let mut fleet = Fleet::of(parts);
        let mut recipes = self.coordinator_recipes(fleet.dir(), &env)?;
        fleet.coordinator_links = self.link(&fleet, &mut recipes).await?;
        fleet.start(recipes, Fleet::add_coordinator).await?;
        let mut recipes = self.worker_recipes(fleet.dir(), &env)?;
        fleet.worker_links = self.link(&fleet, &mut recipes).await?;
        fleet.start(recipes, Fleet::add_worker).await?;
        offered(&fleet).await?;
        Ok(fleet)
    }

    /// Gives each process its own variables, and its links where it is to have some.
    async fn link(&self, fleet: &Fleet, recipes: &mut [Recipe]) -> anyhow::Result<Vec<Links>> {
        let mut links = Vec::new();
        for recipe in recipes {
            let own = self.env_of.iter().filter(|(member, _, _)| *member == recipe.name);
            let own = own.map(|(_, key, value)| (key.clone(), value.clone()));
            recipe.env.extend(own.collect::<Vec<_>>());
            if self.is_linked {
                let nats = Link::to(fleet.nats.port()).await?;
                let redis = Link::to(fleet.redis.port()).await?;
                recipe.env.push(("TOOLFLEET_NATS__URL".into(), nats.url("nats")));
                recipe.env.push(("TOOLFLEET_REDIS__URL".into(), redis.url("redis")));
                links.push(Links { nats, redis });
            }
        }
        Ok(links)
    }

    fn write_tools(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir)?;
        for tool in &self.tools {
            let (folder, stem) = match tool.name.rsplit_once('/') {
                Some((package, stem)) => (dir.join(package), stem),
                None => (dir.to_path_buf(), tool.name.as_str()),
            };
            fs::create_dir_all(&folder)?;
            let manifest = format!(
                "description = \"The tool {0} of a test\"\n{1}\n[run]\n{2}\nexec = [\"./{0}.sh\"]\n",
                stem, tool.keys, tool.run_keys
            );
            let script = folder.join(format!("{stem}.sh"));
            fs::write(&script, format!("#!/bin/sh\n{}\n", tool.script))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
            fs::write(folder.join(format!("{stem}.toml")), manifest)?;
        }
        for folder in &self.tool_folders {
            for entry in fs::read_dir(folder).context(folder.display().to_string())? {
                let entry = entry?;
                fs::copy(entry.path(), dir.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    fn environment(&self, nats_url: &str, redis_url: &str, dir: &Path) -> Vec<(String, String)> {
        // Ledgers lie there.
        let writable = format!("[\"{}\"]", dir.display());
        let own = [
            ("TOOLFLEET_NATS__URL", nats_url),
            ("TOOLFLEET_REDIS__URL", redis_url),
            ("TOOLFLEET_WORKER__WRITABLE", writable.as_str()),
        ];
        let fixed = own.into_iter().chain(SHORT_CLOCKS);
        let fixed = fixed.map(|(key, value)| (key.to_owned(), value.to_owned()));
        fixed.chain(self.env.iter().cloned()).collect()
    }

    fn coordinator_recipes(
        &self,
        dir: &Path,
        env: &[(String, String)],
    ) -> anyhow::Result<Vec<Recipe>> {
        let program = binary(TOOLFLEET)?;
        let args = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let recipe = |number| Recipe {
            name: format!("coordinator-{number}"),
            program: program.clone(),
            args: args.map(str::to_owned).to_vec(),
            env: env.to_vec(),
            dir: dir.to_path_buf(),
        };
        Ok((0..self.coordinators).map(recipe).collect())
    }

    fn worker_recipes(&self, dir: &Path, env: &[(String, String)]) -> anyhow::Result<Vec<Recipe>> {
        let program = match &self.worker_program {
            Some(path) => path.clone(),
            None => binary(WORKER)?,
        };
        let tools = dir.join("tools").to_string_lossy().into_owned();
        let mut args = vec!["--tools".to_owned(), tools];
        if let Some(slots) = self.slots {
            args.extend(["--slots".to_owned(), slots.to_string()]);
        }
        let recipe = |number| Recipe {
            name: format!("worker-{number}"),
            program: program.clone(),
            args: args.clone(),
            env: env.to_vec(),
            dir: dir.to_path_buf(),
        };
        Ok((0..self.workers).map(recipe).collect())
    }
}

/// Waits until each coordinator offers the tools of all workers, and says that they are live.
async fn offered(fleet: &Fleet) -> anyhow::Result<()> {
    let workers = fleet.workers.iter();
    let wanted: Vec<String> = workers
        .flat_map(|worker| worker.ready()["tools"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    for (number, coordinator) in fleet.coordinators.iter().enumerate() {
        let http = coordinator_http(coordinator)?;
        let what = format!("coordinator {number} offers {wanted:?}");
        until(&what, CATALOGUE_TIMEOUT, async || {
            let answer = http.get("/v1/tools").await.ok()?;
            let tools = answer.body["tools"].as_array()?;
            let live = |name: &String| {
                tools.iter().any(|tool| tool["name"] == **name && tool["isLive"] == true)
            };
            wanted.iter().all(live).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// A client of a coordinator.
pub(crate) fn coordinator_http(coordinator: &Member) -> anyhow::Result<Http> {
    let base = coordinator.ready()["http"].as_str().context("the ready file has no http")?;
    Http::new(base)
}
