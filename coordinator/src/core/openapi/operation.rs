//! One operation as a tool.

use super::document::Document;
use super::schema::Schemas;
use super::security::{self, Proof};
use super::{Imported, PROGRAM, effect, name};
use serde_json::{Map, Value, json};
use toolfleet_proto::descriptor::ResultForm;
use toolfleet_proto::schema::Schema;

/// Headers that a parameter does not set: they follow from body and security.
const OWN_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];
/// The property that is the request's body.
const BODY: &str = "body";

/// An operation and where it stands.
pub(super) struct Place<'d, 'a> {
    pub(super) document: &'d Document<'a>,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) item: &'a Value,
    pub(super) operation: &'a Value,
}

/// What goes into the input schema and onto the command line.
struct Input<'d, 'a> {
    schemas: Schemas<'d, 'a>,
    properties: Map<String, Value>,
    required: Vec<String>,
    words: Vec<String>,
}

/// The tool; the error says why there is none.
pub(super) fn tool(
    place: &Place<'_, '_>,
    name: &str,
    server: Option<&str>,
) -> Result<Imported, String> {
    let method = place.method.to_uppercase();
    let url = format!("{}{}", base(place, server)?, place.path);
    let mut input = Input {
        schemas: Schemas::new(place.document),
        properties: Map::new(),
        required: Vec::new(),
        words: Vec::new(),
    };
    for parameter in parameters(place)? {
        input.parameter(place, parameter)?;
    }
    input.body(place)?;
    check_placeholders(place)?;
    let Proof { words: proof, secrets } = security::proof(place.document, place.operation)?;
    let Input { schemas, properties, required, words } = input;
    let schema = input_schema(properties, required, schemas.definitions());
    Schema::compile(&schema).map_err(|error| format!("its input: {}", error.message))?;
    let mut command = vec!["python3".to_owned(), format!("./{PROGRAM}"), method.clone(), url];
    command.extend(words);
    command.extend(proof);
    let mut manifest = Map::new();
    manifest.insert("description".to_owned(), json!(description(place)));
    manifest.insert("effect".to_owned(), json!(effect(place.method).as_str()));
    if !secrets.is_empty() {
        let names: Vec<&str> = secrets.iter().map(|(name, _)| name.as_str()).collect();
        manifest.insert("secrets".to_owned(), json!(names));
    }
    let tags = tags(place.operation);
    if !tags.is_empty() {
        manifest.insert("tags".to_owned(), json!(tags));
    }
    manifest.insert("input".to_owned(), schema);
    let result = result_form(place);
    manifest.insert("run".to_owned(), json!({"exec": command, "result": result}));
    Ok(Imported {
        name: name.to_owned(),
        operation: format!("{method} {}", place.path),
        effect: effect(place.method),
        manifest: Value::Object(manifest),
        secrets,
    })
}

/// Every `{name}` of the path has its parameter.
fn check_placeholders(place: &Place<'_, '_>) -> Result<(), String> {
    let parameters = parameters(place)?;
    for rest in place.path.split('{').skip(1) {
        let name = rest.split('}').next().unwrap_or_default();
        let is_defined = parameters.iter().any(|one| {
            one.get("in").is_some_and(|kind| kind == "path")
                && one.get("name").is_some_and(|found| found == name)
        });
        if !is_defined {
            return Err(format!("the path's {{{name}}} has no parameter"));
        }
    }
    Ok(())
}

fn input_schema(
    properties: Map<String, Value>,
    required: Vec<String>,
    definitions: Map<String, Value>,
) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Value::Object(schema)
}

/// The address that paths are appended to.
fn base(place: &Place<'_, '_>, server: Option<&str>) -> Result<String, String> {
    let root = place.document.root();
    let listed = [place.operation, place.item, root]
        .into_iter()
        .find_map(|holder| holder.get("servers")?.as_array()?.first());
    let url = match (server, listed) {
        (Some(url), _) => url.to_owned(),
        (None, Some(first)) => with_variables(first)?,
        (None, None) => String::new(),
    };
    let url = url.trim_end_matches('/').to_owned();
    let is_whole = url.starts_with("https://") || url.starts_with("http://");
    if is_whole && !url.contains(['{', '}']) {
        Ok(url)
    } else {
        Err(format!("the server {url:?} is no http address: name one with --server"))
    }
}

/// A server's address, its variables at their defaults.
fn with_variables(server: &Value) -> Result<String, String> {
    let mut url = server.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten()
    {
        let default = variable.get("default").and_then(Value::as_str);
        let default =
            default.ok_or_else(|| format!("the server's variable {name:?} has no default"))?;
        url = url.replace(&format!("{{{name}}}"), default);
    }
    Ok(url)
}

/// The operation's parameters, and those of its path that it does not replace.
fn parameters<'a>(place: &Place<'_, 'a>) -> Result<Vec<&'a Value>, String> {
    let key = |parameter: &Value| {
        let text = |key: &str| parameter.get(key).and_then(Value::as_str).map(str::to_owned);
        (text("in"), text("name"))
    };
    let mut found: Vec<&Value> = Vec::new();
    for holder in [place.item, place.operation] {
        for parameter in holder.get("parameters").and_then(Value::as_array).into_iter().flatten() {
            let parameter = place.document.resolve(parameter)?;
            found.retain(|known| key(known) != key(parameter));
            found.push(parameter);
        }
    }
    Ok(found)
}

impl<'a> Input<'_, 'a> {
    fn parameter(&mut self, place: &Place<'_, 'a>, parameter: &'a Value) -> Result<(), String> {
        let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
        let (wire, kind) = (text("name"), text("in"));
        if kind == "header" && OWN_HEADERS.contains(&wire.to_lowercase().as_str()) {
            return Ok(());
        }
        if !matches!(kind, "path" | "query" | "header" | "cookie") {
            return Err(format!("the parameter {wire:?} is in {kind:?}, which is not known"));
        }
        let mut property = name::property(wire);
        if property == BODY || self.properties.contains_key(&property) {
            property = name::property(&format!("{kind}_{wire}"));
        }
        if self.properties.contains_key(&property) {
            return Err(format!("two parameters come to the name {property:?}"));
        }
        let content = parameter.get("content").and_then(Value::as_object);
        let described = content.and_then(|content| content.values().next()).unwrap_or(parameter);
        let mut schema = match described.get("schema") {
            Some(schema) => self.schemas.convert(schema)?,
            None => json!({}),
        };
        if let Some(members) = schema.as_object_mut()
            && !text("description").is_empty()
            && !members.contains_key("description")
        {
            members.insert("description".to_owned(), json!(text("description")));
        }
        self.properties.insert(property.clone(), schema);
        let is_required = parameter.get("required") == Some(&Value::Bool(true));
        if is_required || kind == "path" {
            self.required.push(property.clone());
        }
        let flag = flag(kind, parameter, content.is_some(), place)?;
        let is_plain = wire == property && !wire.contains('=');
        let word = if is_plain { property } else { format!("{wire}={property}") };
        self.words.extend([flag, word]);
        Ok(())
    }

    fn body(&mut self, place: &Place<'_, 'a>) -> Result<(), String> {
        let Some(body) = place.operation.get("requestBody") else { return Ok(()) };
        let body = place.document.resolve(body)?;
        let content = body.get("content").and_then(Value::as_object);
        let Some(content) = content.filter(|content| !content.is_empty()) else { return Ok(()) };
        let of = |wanted: fn(&str) -> bool| content.iter().find(|(kind, _)| wanted(kind));
        let (flag, kind, described) = if let Some((kind, described)) = of(is_json) {
            ("--json-body", kind, described)
        } else if let Some((kind, described)) = of(is_form) {
            ("--form-body", kind, described)
        } else if let Some((kind, described)) = of(|kind| kind.starts_with("text/")) {
            ("--text-body", kind, described)
        } else {
            let kinds: Vec<&str> = content.keys().map(String::as_str).collect();
            return Err(format!("its body is {}, which is not converted", kinds.join(", ")));
        };
        let mut schema = match described.get("schema") {
            Some(schema) => self.schemas.convert(schema)?,
            None => json!({}),
        };
        if let (Some(members), Some(text)) = (schema.as_object_mut(), body.get("description"))
            && !members.contains_key("description")
        {
            members.insert("description".to_owned(), text.clone());
        }
        self.properties.insert(BODY.to_owned(), schema);
        if body.get("required") == Some(&Value::Bool(true)) {
            self.required.push(BODY.to_owned());
        }
        self.words.extend([flag.to_owned(), format!("{kind}={BODY}")]);
        Ok(())
    }
}

/// How a parameter is written on the wire.
fn flag(
    kind: &str,
    parameter: &Value,
    is_json: bool,
    place: &Place<'_, '_>,
) -> Result<String, String> {
    let style = parameter.get("style").and_then(Value::as_str);
    let explode = parameter.get("explode").and_then(Value::as_bool);
    let by_default = if matches!(kind, "query" | "cookie") { "form" } else { "simple" };
    let flag = match (kind, style.unwrap_or(by_default)) {
        ("query", _) if is_json => "--query-json",
        (_, _) if is_json => return Err("a parameter in JSON outside the query".to_owned()),
        ("query", "form") if explode == Some(false) => "--query-joined",
        ("query", "form") => "--query",
        ("query", "deepObject") => "--query-deep",
        ("path", "simple") => {
            let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
            if !place.path.contains(&format!("{{{name}}}")) {
                return Err(format!("the path has no place for its parameter {name:?}"));
            }
            "--path"
        }
        ("header", "simple") => "--header",
        ("cookie", "form") => "--cookie",
        (_, style) => return Err(format!("the style {style:?} of a parameter is not converted")),
    };
    Ok(flag.to_owned())
}

/// `application/json` and its kin.
fn is_json(media_type: &str) -> bool {
    let kind = media_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

fn is_form(media_type: &str) -> bool {
    media_type.starts_with("application/x-www-form-urlencoded")
}

/// Summary and description, for the model.
fn description(place: &Place<'_, '_>) -> String {
    let text = |key: &str| {
        let text = place.operation.get(key).and_then(Value::as_str).unwrap_or_default();
        text.trim().to_owned()
    };
    let (summary, description) = (text("summary"), text("description"));
    let parts: Vec<String> = [summary.clone(), description.clone()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    match parts.as_slice() {
        [] => format!("{} {}", place.method.to_uppercase(), place.path),
        [_, _] if description.starts_with(summary.trim_end_matches('.')) => description,
        parts => parts.join("\n"),
    }
}

fn tags(operation: &Value) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    let listed = operation.get("tags").and_then(Value::as_array).into_iter().flatten();
    for tag in listed.filter_map(Value::as_str).filter(|tag| !tag.trim().is_empty()) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags
}

/// JSON where every good answer is declared to be some; else what comes is taken as text.
fn result_form(place: &Place<'_, '_>) -> ResultForm {
    if place.method == "head" {
        return ResultForm::Json;
    }
    let responses = place.operation.get("responses").and_then(Value::as_object);
    let good: Vec<&Value> = responses
        .into_iter()
        .flatten()
        .filter(|(status, _)| status.starts_with('2'))
        .filter_map(|(_, response)| place.document.resolve(response).ok())
        .collect();
    let is_all_json = |response: &&Value| {
        let content = response.get("content").and_then(Value::as_object);
        content
            .is_some_and(|content| !content.is_empty() && content.keys().all(|kind| is_json(kind)))
    };
    if !good.is_empty() && good.iter().all(is_all_json) {
        ResultForm::Json
    } else {
        ResultForm::Text
    }
}
