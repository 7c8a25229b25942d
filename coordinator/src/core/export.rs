//! Tool definitions in providers' formats (CONTRACT 3.2): what a model is shown. Calls are checked
//! against the author's schema, whatever was shown.

mod conjoin;
mod dialect;
mod gemini;
mod mcp;
mod native;
mod openapi;
mod reference;
mod root;
mod strict;
mod walk;

use super::catalog::Offer;
use super::formats::Format;
use root::Shown;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use strict::Subset;
use toolfleet_proto::descriptor::{Descriptor, hex};

/// Hexadecimal digits of the hash of a list.
const HASH_DIGITS: usize = 32;

/// What a list is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its format.
    pub format: Format,
    /// Only tools with one of them; all where there are none.
    pub tags: Vec<String>,
    /// Whether tools whose schema is in the provider's strict subset as it stands are marked as strict.
    /// Formats without the mark have no use for it.
    pub is_strict: bool,
    /// Whether Gemini's schemas have the older form, a subset of OpenAPI 3.0.
    pub is_openapi: bool,
}

/// The list of tools in a format, sorted by name, and the hash that names its state: `{"format", "tools",
/// "hash", "nextCursor": null}`, `tools` being the value of the provider's parameter. Byte-equal while
/// nothing changed.
pub fn list(wish: &Wish, offers: &BTreeMap<String, Offer>) -> (Value, String) {
    let is_wanted = |offer: &&Offer| {
        wish.tags.is_empty() || wish.tags.iter().any(|tag| offer.descriptor.tags.contains(tag))
    };
    let defined = offers.values().filter(is_wanted).map(|offer| define(wish, offer));
    let mut tools: Vec<Value> = defined.collect();
    if wish.format == Format::Gemini {
        tools = gemini::tools(tools);
    }
    let tools = Value::from(tools);
    let mut hasher = Sha256::new();
    hasher.update(tools.to_string());
    let hash = hex(&hasher.finalize())[..HASH_DIGITS].to_owned();
    let format = wish.format.as_str();
    (json!({"format": format, "tools": tools, "hash": hash, "nextCursor": null}), hash)
}

fn define(wish: &Wish, offer: &Offer) -> Value {
    let tool = offer.descriptor.as_ref();
    match wish.format {
        Format::OpenAiChat => {
            json!({"type": "function", "function": openai(tool, wish.is_strict)})
        }
        Format::OpenAiResponses => {
            let mut function = json!({"type": "function"});
            if let (Value::Object(all), Value::Object(more)) =
                (&mut function, openai(tool, wish.is_strict))
            {
                all.extend(more);
            }
            function
        }
        Format::Anthropic => anthropic(tool, wish.is_strict),
        Format::Gemini if wish.is_openapi => gemini::with_openapi(tool),
        Format::Gemini => gemini::with_json_schema(tool),
        Format::Mcp => mcp::tool(tool),
        Format::Native => native::tool(offer),
    }
}

/// What both APIs of OpenAI say of a function. `strict` is always written, since one of them takes an
/// absent one for `true`.
fn openai(tool: &Descriptor, wants_strict: bool) -> Value {
    let mut shown = root::shown(&dialect::modern(&tool.input_schema), root::OPENAI_REFUSED);
    let strict = wants_strict && is_strict(tool, &shown, Subset::OpenAi);
    walk::with_items(&mut shown.schema);
    json!({
        "name": tool.name,
        "description": describe(tool, &shown),
        "parameters": shown.schema,
        "strict": strict,
    })
}

fn anthropic(tool: &Descriptor, wants_strict: bool) -> Value {
    let shown = root::shown(&dialect::modern(&tool.input_schema), root::ANTHROPIC_REFUSED);
    let strict = wants_strict && is_strict(tool, &shown, Subset::Anthropic);
    json!({
        "name": tool.name,
        "description": describe(tool, &shown),
        "input_schema": shown.schema,
        "strict": strict,
    })
}

/// Whether what is shown is the author's own schema, and that one is in the strict subset.
fn is_strict(tool: &Descriptor, shown: &Shown, subset: Subset) -> bool {
    let mut author = tool.input_schema.clone();
    if let Value::Object(author) = &mut author {
        author.shift_remove("$schema");
    }
    author == shown.schema && strict::is_strict(&author, subset)
}

/// The author's description, and what the shown schema could not say.
fn describe(tool: &Descriptor, shown: &Shown) -> String {
    match &shown.remark {
        Some(remark) => format!("{}\n\n{remark}", tool.description),
        None => tool.description.clone(),
    }
}

#[cfg(test)]
mod tests;
