//! Documents and the manifests that come of them.

use super::*;
use serde_json::json;
use toolfleet_proto::layers::Rules;
use toolfleet_proto::manifest::{self, Syntax};
use toolfleet_proto::schema::Schema;

fn document(version: &str, paths: Value, components: Value) -> Value {
    json!({
        "openapi": version,
        "info": {"title": "Pet Store", "version": "1"},
        "servers": [{"url": "https://{stage}.example.com/v1/", "variables": {"stage": {"default": "api"}}}],
        "paths": paths,
        "components": components,
    })
}

fn one(version: &str, paths: Value, components: Value) -> Imported {
    let import = convert(&document(version, paths, components), None).unwrap();
    assert_eq!(import.left_out, []);
    assert_eq!(import.tools.len(), 1);
    import.tools.into_iter().next().unwrap()
}

fn why(paths: Value, components: Value) -> String {
    let import = convert(&document("3.0.3", paths, components), None).unwrap();
    assert_eq!(import.tools, []);
    import.left_out[0].1.clone()
}

/// As a worker reads it.
fn load(tool: &Imported) -> manifest::Manifest {
    let read = |_: &str| Err("no file".to_owned());
    let text = tool.manifest.to_string();
    let source = manifest::Source {
        file: "t.json",
        package: None,
        stem: &tool.name,
        text: &text,
        syntax: Syntax::Json,
    };
    manifest::parse(source, &Rules::default(), &read).unwrap()
}

fn exec(tool: &Imported) -> Vec<String> {
    load(tool).command
}

#[test]
fn parameters_of_every_place_come_to_one_input() {
    let tool = one(
        "3.0.3",
        json!({"/pets/{petId}": {
        "parameters": [
            {"name": "petId", "in": "path", "required": true, "schema": {"type": "integer"}},
            {"name": "limit", "in": "query", "schema": {"type": "string"}},
        ],
        "post": {
            "operationId": "updatePet", "summary": "Updates a pet.", "description": "By its id.",
            "tags": ["pets", "pets"],
            "parameters": [
                {"name": "limit", "in": "query", "description": "how many", "schema": {"type": "integer", "default": 10}},
                {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}},
                {"name": "filter[name]", "in": "query", "schema": {"type": "string"}},
                {"name": "petId", "in": "header", "schema": {"type": "string"}},
                {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                {"name": "session", "in": "cookie", "schema": {"type": "string"}},
            ],
            "requestBody": {"required": true, "content": {
                "application/xml": {}, "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
            "responses": {"200": {"description": "", "content": {"application/json": {}}}},
        }}}),
        json!({"schemas": {"Pet": {"type": "object", "required": ["name"], "properties": {
            "id": {"type": "integer", "readOnly": true}, "name": {"type": "string"}}}}}),
    );
    assert_eq!((tool.name.as_str(), tool.effect), ("updatePet", Effect::Write));
    assert_eq!(tool.manifest["description"], "Updates a pet.\nBy its id.");
    assert_eq!(tool.manifest["tags"], json!(["pets"]));
    assert_eq!(
        exec(&tool)[..4],
        ["python3", "./http_call.py", "POST", "https://api.example.com/v1/pets/{petId}"]
    );
    assert_eq!(
        exec(&tool)[4..],
        [
            "--path",
            "petId",
            "--query",
            "limit",
            "--query-joined",
            "ids",
            "--query",
            "filter[name]=filter_name_",
            "--header",
            "petId=header_petId",
            "--cookie",
            "session",
            "--json-body",
            "application/json=body",
        ]
    );
    let input = &tool.manifest["input"];
    assert_eq!(input["required"], json!(["petId", "body"]));
    assert_eq!(
        input["properties"]["limit"],
        json!({"type": "integer", "default": 10, "description": "how many"})
    );
    assert_eq!(input["properties"]["body"], json!({"$ref": "#/$defs/Pet"}));
    assert_eq!(
        input["$defs"]["Pet"],
        json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}})
    );
    assert_eq!(tool.manifest["run"]["result"], "json");
    assert_eq!(load(&tool).descriptor.effect, Effect::Write);
}

#[test]
fn methods_have_their_effects_and_results_their_forms() {
    let operation = json!({"responses": {"204": {"description": "gone"}}});
    let paths = json!({"/a": {
        "get": operation, "head": operation, "put": operation, "delete": operation,
        "post": operation, "patch": operation, "options": operation,
    }});
    let import = convert(&document("3.1.0", paths, json!({})), None).unwrap();
    let found: Vec<(&str, &str)> =
        import.tools.iter().map(|tool| (tool.operation.as_str(), tool.effect.as_str())).collect();
    assert_eq!(
        found,
        [
            ("GET /a", "read"),
            ("HEAD /a", "read"),
            ("POST /a", "write"),
            ("PUT /a", "idempotent"),
            ("PATCH /a", "write"),
            ("DELETE /a", "idempotent"),
            ("OPTIONS /a", "write"),
        ]
    );
    let forms: Vec<&Value> =
        import.tools.iter().map(|tool| &tool.manifest["run"]["result"]).collect();
    assert_eq!(forms[..2], [&json!("text"), &json!("json")]);
}

#[test]
fn schemas_of_3_0_become_json_schema() {
    let tool = one(
        "3.0.0",
        json!({"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {
            "type": "object", "x-internal": true, "example": {},
            "properties": {
                "word": {"type": "string", "nullable": true, "enum": ["a", "b"]},
                "ref": {"$ref": "#/components/schemas/Node", "description": "ignored beside a reference"},
                "maybe": {"nullable": true, "allOf": [{"$ref": "#/components/schemas/Node"}]},
                "count": {"type": "integer", "minimum": 0, "exclusiveMinimum": true},
                "most": {"type": "integer", "maximum": 9, "exclusiveMaximum": false},
                "any": {"nullable": true},
            },
        }}}}}}}),
        json!({"schemas": {"Node": {"type": "object", "properties": {
            "next": {"$ref": "#/components/schemas/Node"}}}}}),
    );
    let input = &tool.manifest["input"];
    let body = &input["properties"]["body"]["properties"];
    assert_eq!(body["word"], json!({"type": ["string", "null"], "enum": ["a", "b", null]}));
    assert_eq!(body["ref"], json!({"$ref": "#/$defs/Node"}));
    assert_eq!(
        body["maybe"],
        json!({"anyOf": [{"allOf": [{"$ref": "#/$defs/Node"}]}, {"type": "null"}]})
    );
    assert_eq!(body["count"], json!({"type": "integer", "exclusiveMinimum": 0}));
    assert_eq!(body["most"], json!({"type": "integer", "maximum": 9}));
    assert_eq!(body["any"], json!({}));
    assert_eq!(input["properties"]["body"].get("x-internal"), None);
    let schema = Schema::compile(&load(&tool).descriptor.input_schema).unwrap();
    let nested = json!({"body": {"word": null, "ref": {"next": {"next": {}}}, "maybe": null}});
    assert!(schema.is_valid(&nested));
    assert!(!schema.is_valid(&json!({"body": {"ref": {"next": 5}}})));
    assert!(!schema.is_valid(&json!({"other": 1})), "closed");
}

#[test]
fn schemas_of_3_1_are_taken_as_they_are() {
    let tool = one(
        "3.1.0",
        json!({"/a": {"get": {"parameters": [{"name": "q", "in": "query", "schema":
            {"type": ["string", "null"], "examples": ["x"]}}]}}}),
        json!({}),
    );
    let q = &tool.manifest["input"]["properties"]["q"];
    assert_eq!(*q, json!({"type": ["string", "null"], "examples": ["x"]}));
}

#[test]
fn security_schemes_are_secrets_by_name() {
    let schemes = json!({"securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "inQuery": {"type": "apiKey", "in": "query", "name": "api_key"},
        "token": {"type": "http", "scheme": "Bearer"},
        "login": {"type": "http", "scheme": "basic"},
        "oauth": {"type": "oauth2", "flows": {}},
        "cert": {"type": "mutualTLS"},
    }});
    let with = |security: Value| {
        one("3.0.3", json!({"/a": {"get": {"security": security}}}), schemes.clone())
    };
    let both = with(json!([{"cert": []}, {"key": [], "inQuery": []}]));
    assert_eq!(
        exec(&both)[4..],
        [
            "--secret-header",
            "X-Api-Key=PET_STORE_KEY",
            "--secret-query",
            "api_key=PET_STORE_INQUERY"
        ]
    );
    assert_eq!(load(&both).secrets, ["PET_STORE_KEY", "PET_STORE_INQUERY"]);
    assert_eq!(exec(&with(json!([{"token": []}])))[4..], ["--bearer", "PET_STORE_TOKEN"]);
    assert_eq!(exec(&with(json!([{"login": []}])))[4..], ["--basic", "PET_STORE_LOGIN"]);
    assert_eq!(exec(&with(json!([{"oauth": ["read"]}])))[4..], ["--bearer", "PET_STORE_OAUTH"]);
    assert!(exec(&with(json!([]))).len() == 4);
    assert!(exec(&with(json!([{"cert": []}, {}]))).len() == 4, "optional");
    let refused = why(json!({"/a": {"get": {"security": [{"cert": []}]}}}), schemes);
    assert!(refused.contains("mutualTLS"), "{refused}");
}

#[test]
fn what_cannot_be_converted_is_left_out_with_its_reason() {
    let get = |operation: Value| json!({"/a/{id}": {"get": operation}});
    for (paths, part) in [
        (get(json!({})), "the path's {id} has no parameter"),
        (
            json!({"/a": {"get": {"parameters": [{"$ref": "other.json#/x"}]}}}),
            "leaves the document",
        ),
        (json!({"/a": {"get": {"parameters": [{"$ref": "#/components/x"}]}}}), "leads nowhere"),
        (
            json!({"/a": {"get": {"parameters": [{"name": "b", "in": "query", "style": "pipeDelimited"}]}}}),
            "the style \"pipeDelimited\"",
        ),
        (
            json!({"/a": {"post": {"requestBody": {"content": {"multipart/form-data": {}}}}}}),
            "multipart/form-data",
        ),
        (json!({"/a": {"get": {"servers": [{"url": "/v2"}]}}}), "name one with --server"),
        (
            json!({"/a": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"type": "strnig"}}]}}}),
            "its input: ",
        ),
        (json!({"/a": {"$ref": "#/paths/~1a"}}), "in a circle"),
    ] {
        let reason = why(paths.clone(), json!({}));
        assert!(reason.contains(part), "{paths}: {reason}");
    }
    let bad = |value: Value| convert(&value, None).unwrap_err();
    assert!(bad(json!({"swagger": "2.0"})).contains("Swagger 2"));
    assert!(bad(json!({"openapi": "4.0.0"})).contains("OpenAPI 4.0.0"));
    assert!(bad(json!([])).contains("no OpenAPI document"));
    let named = convert(
        &document("3.0.1", json!({"/a": {"get": {}}}), json!({})),
        Some("http://127.0.0.1:9/x/"),
    )
    .unwrap();
    assert_eq!(exec(&named.tools[0])[3], "http://127.0.0.1:9/x/a");
}
