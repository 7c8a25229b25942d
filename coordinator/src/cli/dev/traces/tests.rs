use super::wire::{
    Any, AnyValue, KeyValue, Link, Resource, ResourceSpans, ScopeSpans, Span, Status,
};
use super::*;
use serde_json::{Value, json};

const ID: &str = "abababababababababababababababab";

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

fn export(spans: Vec<Span>) -> Vec<u8> {
    let attributes = vec![pair("service.name", Any::Text("toolfleet-worker".into()))];
    let of_process = ResourceSpans {
        resource: Some(Resource { attributes }),
        scope_spans: vec![ScopeSpans { spans }],
    };
    Export { resource_spans: vec![of_process] }.encode_to_vec()
}

fn process() -> Span {
    Span {
        trace_id: vec![0xab; 16],
        span_id: vec![1; 8],
        parent_span_id: vec![2; 8],
        name: "process search".into(),
        kind: 5,
        start_time_unix_nano: 5_000_999,
        end_time_unix_nano: 9_001_000,
        attributes: vec![pair("toolfleet.attempt", Any::Int(2))],
        links: vec![Link { trace_id: vec![0xab; 16], span_id: vec![3; 8] }],
        status: Some(Status { code: 2 }),
    }
}

struct Client {
    http: reqwest::Client,
    receiver: Receiver,
}

impl Client {
    async fn new() -> Client {
        toolfleet_io::telemetry::install_tls();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Client { http, receiver: Receiver::start().await.unwrap() }
    }

    fn post(&self, path: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.receiver.url());
        self.http.post(url).header("content-type", MEDIA_TYPE).body(body)
    }

    fn get(&self, id: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}/v1/traces/{id}", self.receiver.url()))
    }
}

async fn status(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn an_export_is_given_back_as_a_trace() {
    let client = Client::new().await;
    assert_eq!(status(client.get(ID)).await, 404);
    assert_eq!(status(client.post("/v1/traces", export(vec![process()]))).await, 200);
    let trace: Value = client.get(ID).send().await.unwrap().json().await.unwrap();
    let expected = json!({"traceId": ID, "spans": [{
        "spanId": "01".repeat(8),
        "parentSpanId": "02".repeat(8),
        "name": "process search",
        "service": "toolfleet-worker",
        "kind": "consumer",
        "startUs": 5_000,
        "durationUs": 4_000,
        "status": "error",
        "attributes": {"toolfleet.attempt": 2},
        "links": [{"traceId": ID, "spanId": "03".repeat(8)}],
    }]});
    assert_eq!(trace, expected);
}

#[tokio::test]
async fn what_is_no_export_is_refused() {
    let client = Client::new().await;
    assert_eq!(status(client.post("/v1/traces", vec![0xff])).await, 400);
    assert_eq!(status(client.post("/v1/traces", vec![0; EXPORT_BYTES_MAX + 1])).await, 413);
    assert_eq!(status(client.post("/v1/metrics", vec![1, 2, 3])).await, 200);
    let url = format!("{}/v1/traces", client.receiver.url());
    let page =
        client.http.post(url).header("content-type", "text/plain").body(export(vec![process()]));
    assert_eq!(status(page).await, 415);
    assert_eq!(status(client.get(ID).header("host", "attacker.example")).await, 403);
    assert_eq!(status(client.get(ID)).await, 404, "nothing of it was kept");
}

#[tokio::test]
async fn the_last_traces_are_kept_and_no_more() {
    let client = Client::new().await;
    let traces_max = u32::try_from(Bounds::default().traces_max).unwrap();
    let spans = (1..=traces_max + 1).map(|number| {
        let mut trace_id = vec![0; 12];
        trace_id.extend(number.to_be_bytes());
        Span { trace_id, ..process() }
    });
    assert_eq!(status(client.post("/v1/traces", export(spans.collect()))).await, 200);
    assert_eq!(status(client.get(&format!("{:032x}", 1))).await, 404);
    assert_eq!(status(client.get(&format!("{:032x}", 2))).await, 200);
    assert_eq!(status(client.get(&format!("{:032x}", traces_max + 1))).await, 200);
}

#[test]
fn children_are_told_where_spans_go() {
    let url = "http://127.0.0.1:7";
    let kept = variables(&Spans::Kept, Some(url));
    assert!(kept.programs.contains(&(ENDPOINT_KEY, url.into())), "{kept:?}");
    assert_eq!(kept.coordinator, [(TRACES_KEY, url.into())]);
    let sent = variables(&Spans::Sent(String::new()), None);
    assert!(sent.programs.contains(&(ENDPOINT_KEY, String::new())), "{sent:?}");
    assert!(sent.coordinator.is_empty());
    assert_eq!(variables(&Spans::AsConfigured, None), Variables::default());
}
