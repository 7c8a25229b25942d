//! The client examples, run against a fleet and a stand-in for the model.

use crate::asked::fleet;
use crate::python::{Made, interpreter};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_examples_end_well_also_where_answers_are_lost() {
    static MADE: Made = OnceLock::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clients = package.join("../examples/clients");
    let python = move || interpreter(&MADE, &clients, "clients-venv");
    let Some(python) = tokio::task::spawn_blocking(python).await.unwrap() else { return };
    let fleet = fleet().tools_of(package.join("../examples/tools")).start().await.unwrap();
    let checking = Command::new(python)
        .arg(package.join("clients/check.py"))
        .arg(fleet.http(0).unwrap().base())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(300), checking);
    let output = output.await.expect("the check ends in time").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{complaint}");
    assert_eq!(said.trim(), "clients: ok", "{complaint}");
}
