//! Values between JSON and the language, and how large they are.

use crate::json::Json;
use crate::schema::path::shorten;
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use std::collections::HashMap;

/// Bytes of text that count as one step.
const BYTES_PER_STEP: usize = 16;

/// A JSON value as the language sees it. An integer beyond 64 bits is a float.
pub(super) fn of_json<'v>(json: &'v Json) -> Box<dyn Val + 'v> {
    match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(flag) => Box::new(CelBool::from(*flag)),
        Json::Number(digits) => of_number(digits),
        Json::String(text) => Box::new(CelString::from(text.as_str())),
        Json::Array(items) => {
            Box::new(CelList::from(items.iter().map(of_json).collect::<Vec<_>>()))
        }
        Json::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| (CelMapKey::from(name.as_str()), of_json(value)));
            Box::new(CelMap::from(members.collect::<HashMap<_, _>>()))
        }
    }
}

fn of_number<'v>(digits: &str) -> Box<dyn Val + 'v> {
    if let Ok(integer) = digits.parse::<i64>() {
        return Box::new(CelInt::from(integer));
    }
    if let Ok(integer) = digits.parse::<u64>() {
        return Box::new(CelUInt::from(integer));
    }
    Box::new(CelDouble::from(digits.parse::<f64>().unwrap_or(f64::NAN)))
}

/// A value as JSON. `spend` takes work off the allowance.
pub(super) fn to_json(value: &(dyn Val + '_), spend: &dyn Fn(u64) -> bool) -> Result<Json, String> {
    if !spend(1) {
        return Err(super::over_budget());
    }
    if let Some(text) = value.downcast_ref::<CelString>() {
        return Ok(Json::String(text.inner().to_owned()));
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        let items = list.inner().iter().map(|item| to_json(item.as_ref(), spend));
        return items.collect::<Result<_, _>>().map(Json::Array);
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        let mut members = Vec::with_capacity(map.inner().len());
        for (key, value) in map.inner() {
            let Some(name) = key.inner().downcast_ref::<CelString>() else {
                return Err("it yields a map with a key that is no string".to_owned());
            };
            members.push((name.inner().to_owned(), to_json(value.as_ref(), spend)?));
        }
        members.sort_by(|a, b| a.0.cmp(&b.0));
        return Ok(Json::Object(members));
    }
    if let Some(flag) = value.downcast_ref::<CelBool>() {
        return Ok(Json::Bool(*flag.inner()));
    }
    if let Some(integer) = value.downcast_ref::<CelInt>() {
        return Ok(Json::Number(integer.inner().to_string()));
    }
    if let Some(integer) = value.downcast_ref::<CelUInt>() {
        return Ok(Json::Number(integer.inner().to_string()));
    }
    if let Some(float) = value.downcast_ref::<CelDouble>() {
        let number = serde_json::Number::from_f64(*float.inner());
        let digits = number.map(|number| number.to_string());
        return digits.map(Json::Number).ok_or_else(|| "it yields no finite number".to_owned());
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Json::Null);
    }
    Err(format!("it yields a {}, which JSON cannot say", shorten(value.get_type().name())))
}

/// Whether the whole of a value is within the allowance, which it is taken off.
pub(super) fn is_within(value: &(dyn Val + '_), spend: &dyn Fn(u64) -> bool) -> bool {
    let of_bytes = |bytes: usize| spend((bytes / BYTES_PER_STEP + 1) as u64);
    if let Some(text) = value.downcast_ref::<CelString>() {
        return of_bytes(text.inner().len());
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return of_bytes(bytes.inner().len());
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        return spend(1) && list.inner().iter().all(|item| is_within(item.as_ref(), spend));
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        let mut entries = map.inner().iter();
        return spend(1)
            && entries.all(|(key, value)| {
                is_within(key.inner(), spend) && is_within(value.as_ref(), spend)
            });
    }
    spend(1)
}

/// Entries that a macro goes through.
pub(super) fn entries(value: &(dyn Val + '_)) -> u64 {
    let of_list = value.downcast_ref::<CelList>().map(|list| list.inner().len());
    let of_map = || value.downcast_ref::<CelMap>().map(|map| map.inner().len());
    of_list.or_else(of_map).unwrap_or(1) as u64
}

/// An integer.
pub(super) fn integer(value: &(dyn Val + '_)) -> Option<i64> {
    value.downcast_ref::<CelInt>().map(|integer| *integer.inner())
}
