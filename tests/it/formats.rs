//! The formats of the providers, read and built by their own packages.

use crate::asked::fleet;
use crate::python::{providers, python};
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_providers_own_packages_read_what_comes_back() {
    let Some(python) = tokio::task::spawn_blocking(python).await.unwrap() else { return };
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tools");
    let fleet = fleet().tools_of(tools).start().await.unwrap();
    let checking = Command::new(python)
        .arg(providers().join("check.py"))
        .arg(fleet.http(0).unwrap().base())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(120), checking);
    let output = output.await.expect("the check ends in time").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{complaint}");
    assert_eq!(said.trim(), "providers: ok", "{complaint}");
}
