use super::*;
use proptest::prelude::*;

fn refusal(text: &str) -> ParseError {
    Json::parse(text).unwrap_err()
}

#[test]
fn digits_and_order_are_kept() {
    let text = r#"{"z":123456789012345678901234567890,"a":0.12345678901234567890123,"n":-0,"e":1E5,"t":1e-400}"#;
    assert_eq!(Json::parse(text).unwrap().to_text(), text);
    assert_eq!(Json::parse(" [ 1 , 2 ]\n").unwrap().to_text(), "[1,2]");
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for text in [
        "{\"x\": NaN}",
        "{\"x\": Infinity}",
        "{\"x\": -Infinity}",
        "{\"x\": 01}",
        "{\"x\": .5}",
        "{\"x\": 1,}",
        "{'x': 1}",
        "{\"x\": 1} trailing",
        "{\"x\": 1}{\"x\": 2}",
        "{\"x\": ",
        "[1,]",
        "",
        "\"a\nb\"",
        "\"\\x\"",
    ] {
        let error = refusal(text);
        assert_eq!(error.fault, ParseFault::Syntax, "{text}");
        let words = error.to_string();
        assert!(words.starts_with("not valid JSON: ") && words.contains("column"), "{words}");
    }
}

#[test]
fn other_faults_name_their_path() {
    assert_eq!(refusal(r#"{"a":[{"b":1,"b":2}]}"#).to_string(), "a[0].b: duplicate key");
    assert_eq!(refusal(r#"{"a":1,"\u0061":2}"#).fault, ParseFault::DuplicateKey);
    assert_eq!(
        refusal(r#"{"text":"half \ud835 end"}"#).to_string(),
        "text: lone surrogate in the string"
    );
    assert_eq!(refusal(r#"{"text":"half \udf78"}"#).fault, ParseFault::LoneSurrogate);
    assert_eq!(refusal(r#"{"\ud835":1}"#).to_string(), "lone surrogate in the key \"\\ud835\"");
    assert_eq!(refusal(r#"{"x":[1e400]}"#).to_string(), "x[0]: number out of range: 1e400");
    assert_eq!(refusal(r#"{"x":-1e400}"#).fault, ParseFault::OutOfRange);
}

#[test]
fn an_escaped_pair_is_one_character() {
    let json = Json::parse(r#""glass \ud83c\udf78 end""#).unwrap();
    assert_eq!(json, Json::String("glass 🍸 end".into()));
}

#[test]
fn nesting_is_bounded_and_never_overflows() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Json::parse(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(refusal(&nested(DEPTH_MAX + 1)).fault, ParseFault::TooDeep);
    assert_eq!(refusal(&nested(100_000)).fault, ParseFault::TooDeep);
    assert_eq!(refusal(&"{\"a\":".repeat(100_000)).fault, ParseFault::Syntax);
}

#[test]
fn arguments_that_are_not_there_are_an_empty_object() {
    for text in [None, Some(""), Some("  \n"), Some("null"), Some("{}")] {
        assert_eq!(Json::parse_arguments(text), Ok(Json::Object(vec![])), "{text:?}");
    }
}

#[test]
fn arguments_that_are_no_object_are_refused_by_name() {
    let refused = |text| Json::parse_arguments(Some(text)).unwrap_err();
    let twice = "expected an object, got a string that holds JSON: send the arguments as an object, encoded once";
    assert_eq!(refused(r#""{\"city\": \"Oslo\"}""#), twice);
    assert_eq!(refused(r#""null""#), twice);
    assert_eq!(refused(r#""Oslo""#), "expected an object, got a string");
    assert_eq!(refused("[{}]"), "expected an object, got an array");
    assert_eq!(refused("5"), "expected an object, got a number");
    assert!(refused("{\"a\":").starts_with("not valid JSON: EOF"));
    assert_eq!(refused(r#"{"a":1,"a":1}"#), "a: duplicate key");
}

#[test]
fn values_come_back_from_their_conversion() {
    let json = Json::parse(r#"{"u":18446744073709551615,"i":-5,"f":0.5,"b":true,"n":null}"#);
    let json = json.unwrap();
    assert_eq!(Json::from_value(&json.to_value()), json);
    assert!(Json::Number("123456789012345678901234567890".into()).to_value().is_f64());
    assert_eq!(json.get("i"), Some(&Json::Number("-5".into())));
    assert_eq!(json.get("x"), None);
    assert_eq!(Json::Null.get("i"), None);
}

#[test]
fn the_hash_ignores_the_order_of_names_alone() {
    let hash = |text| Json::parse(text).unwrap().hash();
    assert_eq!(hash(r#"{"a":1,"b":[{"d":1,"c":2}]}"#), hash(r#"{"b":[{"c":2,"d":1}],"a":1}"#));
    assert_ne!(hash("[1,2]"), hash("[2,1]"));
    assert_ne!(hash("1.0"), hash("1"));
    let sorted = Json::parse(r#"{"b":1,"é":2,"B":3}"#).unwrap().canonical();
    assert_eq!(sorted, r#"{"B":3,"b":1,"é":2}"#);
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?(e-?[0-9]{1,2})?".prop_map(Json::Number),
        any::<String>().prop_map(Json::String),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_read_back_from_its_text(json in any_json()) {
        prop_assert_eq!(&Json::parse(&json.to_text()).unwrap(), &json);
        prop_assert_eq!(&Json::parse(&json.canonical()).unwrap().canonical(), &json.canonical());
        prop_assert!(serde_json::from_str::<Value>(&json.to_text()).is_ok());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[\\[\\]{}:,\"\\\\u0-9a-fdeE+.n -]{0,60}") {
        if let Ok(json) = Json::parse(&text) {
            prop_assert!(serde_json::from_str::<IgnoredAny>(&json.to_text()).is_ok());
        }
    }
}

#[test]
fn whole_numbers_are_whole_however_they_are_written() {
    for (written, plain) in [
        ("5.0", "5"),
        ("5e0", "5"),
        ("1e3", "1000"),
        ("1.50E+2", "150"),
        ("-120e-1", "-12"),
        ("-0.0", "0"),
        ("0e5", "0"),
        ("9007199254740993.000", "9007199254740993"),
        ("5.5", "5.5"),
        ("5e-1", "5e-1"),
        ("0.001", "0.001"),
        ("1e300", "1e300"),
        ("1e-9999999999", "1e-9999999999"),
        ("7", "7"),
        ("-0", "-0"),
    ] {
        let json = Json::Array(vec![Json::Number(written.into())]);
        assert_eq!(json.with_whole_numbers().to_text(), format!("[{plain}]"), "{written}");
    }
}
