//! Tool definitions in providers' formats (CONTRACT 3.2): what a model is shown. Calls are checked
//! against the author's schema, whatever was shown.

mod root;

use super::catalog::Offer;
use super::formats::OPENAI_CHAT;
use super::formats::anthropic::ANTHROPIC;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use toolfleet_proto::descriptor::{Descriptor, hex};

/// Hexadecimal digits of the hash of a list.
const HASH_DIGITS: usize = 32;

/// The list of tools in a provider's format, sorted by name, and the hash that names its state:
/// `{"format", "tools", "hash", "nextCursor": null}`, `tools` being the value of the provider's
/// parameter. Only tools with one of `tags`, or all where there are none. Byte-equal while nothing
/// changed. `None`: no such format.
pub fn list(
    format: &str,
    offers: &BTreeMap<String, Offer>,
    tags: &[String],
) -> Option<(Value, String)> {
    let define: fn(&Descriptor) -> Value = match format {
        OPENAI_CHAT => openai_chat,
        ANTHROPIC => anthropic,
        _ => return None,
    };
    let tools: Vec<Value> = offers
        .values()
        .map(|offer| offer.descriptor.as_ref())
        .filter(|tool| tags.is_empty() || tags.iter().any(|tag| tool.tags.contains(tag)))
        .map(define)
        .collect();
    let mut hasher = Sha256::new();
    hasher.update(Value::from(tools.clone()).to_string());
    let hash = hex(&hasher.finalize())[..HASH_DIGITS].to_owned();
    let list = json!({"format": format, "tools": tools, "hash": hash, "nextCursor": null});
    Some((list, hash))
}

/// `strict` is written, since some of the provider's APIs take an absent one for `true`.
fn openai_chat(tool: &Descriptor) -> Value {
    let shown = root::shown(&tool.input_schema, root::OPENAI_REFUSED);
    json!({"type": "function", "function": {
        "name": tool.name,
        "description": describe(tool, &shown),
        "parameters": shown.schema,
        "strict": false,
    }})
}

fn anthropic(tool: &Descriptor) -> Value {
    let shown = root::shown(&tool.input_schema, root::ANTHROPIC_REFUSED);
    json!({
        "name": tool.name,
        "description": describe(tool, &shown),
        "input_schema": shown.schema,
        "strict": false,
    })
}

/// The author's description, and what the shown schema could not say.
fn describe(tool: &Descriptor, shown: &root::Shown) -> String {
    match &shown.remark {
        Some(remark) => format!("{}\n\n{remark}", tool.description),
        None => tool.description.clone(),
    }
}

/// Golden files: what the outside reads, compared byte for byte. `TOOLFLEET_GOLDEN=write` rewrites
/// them.
#[cfg(test)]
pub(crate) mod golden {
    use serde_json::Value;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/formats").join(name)
    }

    pub(crate) fn read(name: &str) -> String {
        std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn check(name: &str, value: &Value) {
        let text = format!("{}\n", serde_json::to_string_pretty(value).unwrap());
        if std::env::var("TOOLFLEET_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(path(name), &text).unwrap();
        }
        assert_eq!(read(name), text, "{name}: run with TOOLFLEET_GOLDEN=write if that is meant");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolfleet_proto::descriptor::{ResultForm, Runner};
    use toolfleet_proto::effect::Effect;
    use toolfleet_proto::schema::Schema;

    fn offer(name: &str, description: &str, tags: &[&str], schema: &str) -> (String, Offer) {
        let input_schema: Value = serde_json::from_str(schema).unwrap();
        let descriptor = Descriptor {
            name: name.into(),
            description: description.into(),
            effect: Effect::Read,
            rerun: false,
            timeout_ms: 1,
            queue_timeout_ms: 1,
            total_timeout_ms: 1,
            max_attempts: 1,
            result_bytes_max: 1,
            input_schema,
            output_schema: None,
            result: ResultForm::Text,
            runner: Runner::Native,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            presentation: None,
            declared: toolfleet_proto::declared::Declared::default(),
        };
        let offer = Offer {
            pool: "default".into(),
            hash: descriptor.hash(),
            input: Arc::new(Schema::compile(&descriptor.input_schema).unwrap()),
            descriptor: Arc::new(descriptor),
            is_live: true,
        };
        (name.to_owned(), offer)
    }

    fn offers() -> BTreeMap<String, Offer> {
        [
            offer("weather", "Forecast for a city.", &["demo"], r#"{"type":"object","required":["city","days"],"additionalProperties":false,"properties":{"days":{"type":"integer","minimum":1,"maximum":7},"city":{"type":"string","description":"name in English"}}}"#),
            offer("ping", "Says that it is there.", &[], "{}"),
            offer("anything", "Takes anything.", &[], "true"),
            offer("find-contact", "Finds a contact.", &["crm"], r#"{"type":"object","properties":{"limit":{"type":"integer"},"email":{"type":"string"},"phone":{"type":"string"}},"anyOf":[{"required":["email"]},{"required":["phone"]}]}"#),
            offer("pay", "Pays a bill.", &["crm", "money"], r##"{"oneOf":[{"type":"object","title":"card","required":["kind","number","amount"],"properties":{"kind":{"const":"card"},"number":{"type":"string"},"amount":{"type":"number"}}},{"$ref":"#/$defs/transfer"}],"$defs":{"transfer":{"type":"object","required":["kind","iban","amount"],"properties":{"kind":{"const":"transfer"},"iban":{"type":"string"},"amount":{"type":"number"}},"additionalProperties":false}}}"##),
            offer("book", "Books a room.", &[], r#"{"type":"object","required":["from"],"properties":{"from":{"type":"string","format":"date"}},"allOf":[{"properties":{"nights":{"type":"integer"}},"required":["nights"]},{"if":{"required":["breakfast"]},"then":{"required":["guests"]}}]}"#),
        ]
        .into()
    }

    #[test]
    fn tools_are_listed_as_the_golden_files_say() {
        for format in [OPENAI_CHAT, ANTHROPIC] {
            let (list, hash) = super::list(format, &offers(), &[]).unwrap();
            assert_eq!((list["hash"].as_str(), hash.len()), (Some(hash.as_str()), HASH_DIGITS));
            golden::check(&format!("{format}.tools.json"), &list);
        }
        assert!(super::list("gemini", &offers(), &[]).is_none());
    }

    #[test]
    fn a_list_is_sorted_selected_by_tag_and_its_hash_names_its_state() {
        let names = |tags: &[String]| -> Vec<String> {
            let (list, _) = super::list(ANTHROPIC, &offers(), tags).unwrap();
            let tools = list["tools"].as_array().unwrap();
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&[]), ["anything", "book", "find-contact", "pay", "ping", "weather"]);
        assert_eq!(names(&["money".to_owned(), "demo".to_owned()]), ["pay", "weather"]);
        assert!(names(&["none".to_owned()]).is_empty());
        let hash =
            |offers: &BTreeMap<String, Offer>| super::list(OPENAI_CHAT, offers, &[]).unwrap().1;
        let mut fewer = offers();
        fewer.remove("ping");
        assert_eq!(hash(&offers()), hash(&offers()));
        assert_ne!(hash(&offers()), hash(&fewer));
    }
}
