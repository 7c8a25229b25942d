//! Tools that the command line makes: `toolfleet new` and `toolfleet import openapi`.

use crate::cli::{check, toolfleet};
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse as _;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use toolfleet_tests::{WORKER, binary};

fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

/// Calls a tool of a folder here; what comes of it, and its exit code.
async fn test(dir: &Path, tool: &str, input: &Value, env: &[(&str, &str)]) -> (Value, i32) {
    let input = input.to_string();
    let args = ["test", tool, "--tools", path(dir), "--input", &input, "--json"];
    let output = toolfleet(&args, env).await;
    let code = output.status.code().unwrap();
    let shown = serde_json::from_slice(&output.stdout);
    (shown.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))), code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_tool_works_at_once_and_replaces_nothing() {
    let place = place();
    let dir = place.path().join("tools");
    for (name, kind) in [("count-sh", "--sh"), ("count-py", "--python")] {
        let args = ["new", name, kind, "--tools", path(&dir)];
        let (out, _) = check(&toolfleet(&args, &[]).await, 0);
        assert!(out.contains(&format!("{name}.toml")), "{out}");
        for (input, words) in
            [(json!({}), 2), (json!({"text": "a \"b\" c\nd"}), 4), (json!({"text": ""}), 0)]
        {
            let (shown, code) = test(&dir, name, &input, &[]).await;
            assert_eq!((code, &shown["output"]["check"]), (0, &json!("fits")), "{shown}");
            assert_eq!(shown["model"]["text"], format!("{{\"words\":{words}}}"), "{shown}");
        }
        let before = fs::read_to_string(dir.join(format!("{name}.toml"))).unwrap();
        fs::write(dir.join(format!("{name}.toml")), format!("{before}# mine\n")).unwrap();
        for again in ["--sh", "--python"] {
            let (_, err) =
                check(&toolfleet(&["new", name, again, "--tools", path(&dir)], &[]).await, 1);
            assert!(err.contains("is there already; nothing was written"), "{err}");
        }
        assert!(
            fs::read_to_string(dir.join(format!("{name}.toml"))).unwrap().ends_with("# mine\n")
        );
    }
    check(&toolfleet(&["describe", "--tools", path(&dir)], &[]).await, 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 4);

    for (kind, part) in [("--http", "no runner `http`"), ("--mcp", "no runner `mcp`")] {
        let (_, err) = check(&toolfleet(&["new", "x", kind, "--tools", path(&dir)], &[]).await, 2);
        assert!(err.contains("not yet") && err.contains(part), "{err}");
    }
    for args in [&["new", "x"][..], &["new", "x", "--sh", "--python"], &["new", "no name", "--sh"]]
    {
        check(&toolfleet(args, &[]).await, 2);
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 4, "nothing more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_worker_in_rust_names_its_checkout() {
    let place = place();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let new = ["new", "tally", "--rust", "--tools", path(place.path())];
    let (_, err) = check(&toolfleet(&new, &[]).await, 2);
    assert!(err.contains("--checkout"), "{err}");
    let args = [&new[..], &["--checkout", path(checkout)]].concat();
    check(&toolfleet(&args, &[]).await, 0);
    let cargo: Value = {
        let text = fs::read_to_string(place.path().join("tally/Cargo.toml")).unwrap();
        assert!(text.contains(&format!("path = \"{}/worker\"", checkout.display())), "{text}");
        json!(text)
    };
    assert!(cargo.as_str().unwrap().contains("name = \"tally\""));
    let main = fs::read_to_string(place.path().join("tally/src/main.rs")).unwrap();
    assert!(main.contains("ToolSpec::read(\"tally\""), "{main}");
    check(&toolfleet(&args, &[]).await, 1);
}

/// Answers with what it was asked.
async fn echo(
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    match uri.path() {
        "/v1/missing" => (StatusCode::NOT_FOUND, "no such thing").into_response(),
        "/v1/moved" => (StatusCode::FOUND, [("location", "/v1/echo")]).into_response(),
        path => {
            let headers: Map<String, Value> = headers
                .iter()
                .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or_default())))
                .collect();
            let body = String::from_utf8_lossy(&body);
            let answer = json!({
                "method": method.as_str(), "path": path, "query": uri.query(), "headers": headers, "body": body,
            });
            ([("content-type", "application/json")], answer.to_string()).into_response()
        }
    }
}

async fn api() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(echo);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

fn document(server: &str) -> Value {
    let answer = json!({"200": {"description": "", "content": {"application/json": {}}}});
    json!({
        "openapi": "3.0.3",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": server}],
        "security": [{"key": []}],
        "paths": {
            "/items/{itemId}": {"get": {
                "operationId": "getItem", "summary": "Reads an item",
                "parameters": [
                    {"name": "itemId", "in": "path", "required": true, "schema": {"type": "string"}},
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}},
                    {"name": "where", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "boolean"}},
                ],
                "responses": answer,
            }},
            "/items": {"post": {
                "operationId": "makeItem", "summary": "Makes an item", "security": [{"login": []}],
                "requestBody": {"required": true, "content": {"application/json": {"schema": {
                    "type": "object", "required": ["price"],
                    "properties": {"price": {"type": "number"}, "note": {"type": "string", "nullable": true}}}}}},
                "responses": answer,
            }},
            "/form": {"put": {
                "security": [],
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
            }},
            "/missing": {"delete": {"security": []}},
            "/moved": {"get": {"operationId": "moved"}},
            "/upload": {"post": {"requestBody": {"content": {"multipart/form-data": {}}}}},
        },
        "components": {"securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "login": {"type": "http", "scheme": "basic"},
        }},
    })
}

/// What the API was asked, as the model would read it.
fn asked(shown: &Value) -> Value {
    let text = shown["model"]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{shown}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imported_operations_call_their_api() {
    let place = place();
    let (file, dir) = (place.path().join("shop.json"), place.path().join("tools"));
    fs::write(&file, document(&api().await).to_string()).unwrap();
    let import = ["import", "openapi", path(&file), "--out", path(&dir)];
    let (out, _) = check(&toolfleet(&import, &[]).await, 0);
    for part in [
        "5 tools",
        "getItem      ",
        "left out: POST /upload: its body is multipart/form-data",
        "needs the secret SHOP_KEY: the API key",
        "needs the secret SHOP_LOGIN: user and password",
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
    check(&toolfleet(&["describe", "--tools", path(&dir)], &[]).await, 0);
    let secrets = [("SHOP_KEY", "s3 cret"), ("SHOP_LOGIN", "me:pw")];

    let input = json!({"itemId": "a/b?", "tag": ["x", "y z"], "ids": [1, 2], "where": {"color": "red"}, "X-Trace": true});
    let (shown, code) = test(&dir, "getItem", &input, &secrets).await;
    assert_eq!(code, 0, "{shown}");
    let got = asked(&shown);
    assert_eq!((&got["method"], &got["path"]), (&json!("GET"), &json!("/v1/items/a%2Fb%3F")));
    assert_eq!(got["query"], "tag=x&tag=y+z&ids=1%2C2&where%5Bcolor%5D=red&api_key=s3+cret");
    assert_eq!(got["headers"]["x-trace"], "true");
    assert_eq!(got["headers"].get("idempotency-key"), None);

    let made = r#"{"body":{"price":12345678901234567890.10,"note":null}}"#;
    let args = ["test", "makeItem", "--tools", path(&dir), "--input", made, "--json"];
    let (out, _) = check(&toolfleet(&args, &secrets).await, 0);
    let got = asked(&serde_json::from_str(&out).unwrap());
    assert_eq!(got["body"], r#"{"price":12345678901234567890.10,"note":null}"#, "digits stay");
    assert_eq!(got["headers"]["content-type"], "application/json");
    assert_eq!(got["headers"]["authorization"], "Basic bWU6cHc=");
    assert!(got["headers"]["idempotency-key"].as_str().unwrap().starts_with("test:main:direct:"));

    let (shown, _) = test(&dir, "put_form", &json!({"body": {"a": [1, 2], "b": "c d"}}), &[]).await;
    assert_eq!(asked(&shown)["body"], "a=1&a=2&b=c+d");
    for (tool, input, env, part) in [
        ("delete_missing", json!({}), &[][..], "/v1/missing answered 404 Not Found: no such thing"),
        ("moved", json!({}), &secrets[..], "/v1/moved answered 302 Found"),
        ("getItem", json!({"itemId": ".."}), &secrets[..], "itemId: '..' cannot be part of a path"),
        ("getItem", json!({"itemId": "a"}), &[][..], "the secret SHOP_KEY is not on this worker"),
        ("getItem", json!({"itemId": 5}), &secrets[..], "invalid input: itemId: expected string"),
    ] {
        let (shown, code) = test(&dir, tool, &input, env).await;
        let text = shown["model"]["text"].as_str().unwrap();
        assert!(code == 1 && text.contains(part), "{text}");
        assert!(!text.contains("s3"), "no secret is told: {text}");
    }

    let (_, err) = check(&toolfleet(&import, &[]).await, 1);
    assert!(err.contains("is there already; nothing was written"), "{err}");
    // A worker with them starts.
    let worker = binary(WORKER).unwrap();
    let output =
        tokio::process::Command::new(worker).args(["describe", "--tools", path(&dir)]).output();
    check(&output.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_document_says_so_and_too_many_are_cut() {
    let place = place();
    let (file, dir) = (place.path().join("api.json"), place.path().join("tools"));
    let import = async |more: &[&str]| {
        toolfleet(&[&["import", "openapi", path(&file), "--out", path(&dir)], more].concat(), &[])
            .await
    };
    for (text, part) in [
        ("openapi: 3.0.3\npaths: {}\n", "YAML is not read"),
        ("{\"openapi\": ", "is not JSON"),
        ("{\"swagger\": \"2.0\"}", "Swagger 2"),
    ] {
        fs::write(&file, text).unwrap();
        let (_, err) = check(&import(&[]).await, 2);
        assert!(err.contains(part), "{err}");
    }
    fs::write(&file, r#"{"openapi": "3.1.0", "paths": {"/a": {"get": {}}}}"#).unwrap();
    let (_, err) = check(&import(&[]).await, 1);
    assert!(
        err.contains("GET /a: the server \"\" is no http address: name one with --server"),
        "{err}"
    );
    let paths: Map<String, Value> =
        (0..45).map(|n| (format!("/p{n}"), json!({"get": {}}))).collect();
    fs::write(&file, json!({"openapi": "3.1.0", "paths": paths}).to_string()).unwrap();
    let server = ["--server", "http://127.0.0.1:9"];
    let (out, _) = check(&import(&server).await, 0);
    assert!(
        out.contains("40 tools") && out.contains("only the first 40 are written without --all"),
        "{out}"
    );
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 41);
    fs::remove_dir_all(&dir).unwrap();
    check(&import(&[&server[..], &["--all"]].concat()).await, 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 46);
}
