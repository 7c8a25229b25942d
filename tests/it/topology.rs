//! Streams and buckets: made once, compared always, refused by name.

use async_nats::jetstream::stream;
use tokio::process::Command;
use toolfleet_io::broker::Broker;
use toolfleet_io::child::{NatsOptions, NatsServer};
use toolfleet_io::config::TopologyMode;
use toolfleet_io::topology::{self, Error};
use toolfleet_proto::limit::Limits;
use toolfleet_tests::{Programs, TOOLFLEET, binary, broker_at, clean_environment};

struct Empty {
    nats: NatsServer,
    broker: Broker,
    _folder: tempfile::TempDir,
}

async fn empty_broker() -> Empty {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().nats;
    let nats = NatsServer::start(NatsOptions::new(program, folder.path())).await.unwrap();
    let broker = broker_at(&nats.url()).await.unwrap();
    Empty { nats, broker, _folder: folder }
}

async fn ensure(broker: &Broker, mode: TopologyMode) -> Result<(), Error> {
    topology::ensure(broker, &Limits::default(), mode).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_made_once_by_however_many() {
    let empty = empty_broker().await;
    let make = || ensure(&empty.broker, TopologyMode::Make);
    let (one, two, three) = tokio::join!(make(), make(), make());
    for made in [one, two, three] {
        made.unwrap();
    }
    let results = empty.broker.prefix().results_stream();
    let created = async || {
        let stream = empty.broker.jetstream().get_stream(&results).await.unwrap();
        stream.cached_info().created
    };
    let before = created().await;
    make().await.unwrap();
    assert_eq!(created().await, before, "made again, it is the same stream");
    ensure(&empty.broker, TopologyMode::Check).await.unwrap();
    let parts = topology::look(&empty.broker, &Limits::default()).await.unwrap();
    assert_eq!(parts.iter().filter(|part| part.kind == "stream").count(), 6);
    assert_eq!(parts.iter().filter(|part| part.kind == "bucket").count(), 3);
    assert!(parts.iter().all(|part| part.faults.is_empty()), "{parts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_makes_nothing_and_names_what_is_missing() {
    let empty = empty_broker().await;
    let error = ensure(&empty.broker, TopologyMode::Check).await.unwrap_err();
    let Error::Different(faults) = &error else { panic!("{error}") };
    assert_eq!(faults.len(), 9, "{error}");
    for name in ["TF_V1_JOBS", "TF_V1_RESULTS", "TF_V1_STARTS", "TF_V1_SPEND", "TF_V1_TOOLS"] {
        assert!(
            faults.iter().any(|fault| fault.contains(&format!("{name} is missing"))),
            "{error}"
        );
    }
    let results = empty.broker.prefix().results_stream();
    assert!(empty.broker.jetstream().get_stream(&results).await.is_err(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_changed_by_hand_is_refused_with_a_sentence() {
    let empty = empty_broker().await;
    ensure(&empty.broker, TopologyMode::Make).await.unwrap();
    let jetstream = empty.broker.jetstream();
    let results = empty.broker.prefix().results_stream();
    let found = jetstream.get_stream(&results).await.unwrap().cached_info().config.clone();
    // What belongs to the operator is no fault.
    let theirs = stream::Config { max_bytes: 1 << 30, max_age: found.max_age * 2, ..found.clone() };
    jetstream.update_stream(theirs).await.unwrap();
    ensure(&empty.broker, TopologyMode::Make).await.unwrap();

    jetstream.update_stream(stream::Config { republish: None, ..found }).await.unwrap();
    let sentence = "stream TF_V1_RESULTS: republish is none, must be tf.v1.res.> -> tf.v1.done.>";
    for mode in [TopologyMode::Make, TopologyMode::Check] {
        let error = ensure(&empty.broker, mode).await.unwrap_err();
        let Error::Different(faults) = &error else { panic!("{error}") };
        assert_eq!(faults, &[sentence]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_shows_it_as_it_is() {
    let empty = empty_broker().await;
    ensure(&empty.broker, TopologyMode::Make).await.unwrap();
    let mut command = Command::new(binary(TOOLFLEET).unwrap());
    clean_environment(&mut command);
    command.args(["topology", "--json"]).env("TOOLFLEET_NATS__URL", empty.nats.url());
    let output = command.output().await.unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    for name in ["TF_V1_JOBS", "TF_V1_RESULTS", "TF_V1_STARTS", "TF_V1_SPEND", "TF_V1_TOOLS"] {
        assert!(shown.to_string().contains(&format!("\"{name}\"")), "{name} is not shown: {out}");
    }
    // A pool's consumer that is not as its workers will want it.
    let jobs = empty.broker.prefix().jobs_stream();
    let jobs = empty.broker.jetstream().get_stream(&jobs).await.unwrap();
    let mut config =
        topology::consumer_config(empty.broker.prefix(), "default", &Limits::default());
    config.max_deliver = 3;
    jobs.create_consumer(config).await.unwrap();
    let output = command.output().await.unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(78), "{out}");
    let fault = "consumer pool-default: max_deliver is 3, must be unlimited";
    assert!(out.contains(fault), "{out}");
}
