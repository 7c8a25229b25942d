//! Security schemes as secrets: the manifest names them, never their values (CONTRACT 1.10, 1.14).

use super::document::Document;
use super::name;
use serde_json::{Map, Value};

/// How a call proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// Words for the program.
    pub(super) words: Vec<String>,
    /// Names of secrets, each with what it holds.
    pub(super) secrets: Vec<(String, String)>,
}

/// The first of the alternatives that can be met. Where none is asked for, nothing is proved.
pub(super) fn proof<'a>(document: &Document<'a>, operation: &'a Value) -> Result<Proof, String> {
    let asked = operation.get("security").or_else(|| document.root().get("security"));
    let alternatives: Vec<&Map<String, Value>> = asked
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect();
    let is_optional = alternatives.is_empty() || alternatives.iter().any(|one| one.is_empty());
    let mut why = None;
    for alternative in alternatives.into_iter().filter(|one| !one.is_empty()) {
        match meet(document, alternative) {
            Ok(proof) => return Ok(proof),
            Err(reason) => why = Some(reason),
        }
    }
    match why {
        Some(reason) if !is_optional => Err(reason),
        _ => Ok(Proof::default()),
    }
}

/// All schemes of one alternative.
fn meet(document: &Document<'_>, alternative: &Map<String, Value>) -> Result<Proof, String> {
    let mut proof = Proof::default();
    for scheme in alternative.keys() {
        add(document, scheme, &mut proof)?;
    }
    Ok(proof)
}

fn add(document: &Document<'_>, scheme: &str, proof: &mut Proof) -> Result<(), String> {
    let root = document.root();
    let defined = root.get("components").and_then(|parts| parts.get("securitySchemes"));
    let Some(found) = defined.and_then(|schemes| schemes.get(scheme)) else {
        return Err(format!("there is no security scheme {scheme:?}"));
    };
    let found = document.resolve(found)?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    let title = root.get("info").and_then(|info| info.get("title")).and_then(Value::as_str);
    let secret = name::variable(&[title.unwrap_or_default(), scheme]);
    let mut put = |words: [String; 2], holds: &str| {
        proof.words.extend(words);
        proof.secrets.push((secret.clone(), holds.to_owned()));
    };
    match (text("type"), text("in"), text("scheme").to_lowercase().as_str()) {
        ("apiKey", place @ ("header" | "query" | "cookie"), _) => {
            let word = format!("{}={secret}", text("name"));
            put([format!("--secret-{place}"), word], "the API key");
        }
        ("http", _, "bearer") => put(["--bearer".into(), secret.clone()], "the bearer token"),
        ("http", _, "basic") => {
            put(["--basic".into(), secret.clone()], "user and password, as user:password");
        }
        ("oauth2" | "openIdConnect", ..) => {
            put(["--bearer".into(), secret.clone()], "an access token, which nothing renews");
        }
        (kind, ..) => return Err(format!("the security scheme {scheme:?} ({kind}) is not known")),
    }
    Ok(())
}
