//! A short soak; `just soak` is the long one.

use std::time::Duration;
use toolfleet_tests::soak::{self, Plan};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_while_everything_is_killed_paused_and_emptied() {
    let worker = std::path::Path::new(env!("CARGO_BIN_EXE_test-worker"));
    let fleet = soak::fleet(worker, 2, 3).start().await.unwrap();
    let seed = u64::from(std::process::id());
    let plan = Plan::new(seed, 300, Duration::from_secs(20), 3_000);
    let report = soak::run(fleet, plan).await.unwrap();
    println!("{report}");
    assert!(report.violations().is_empty(), "{report}");
}
