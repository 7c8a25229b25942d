//! Secrets that a tool names (CONTRACT 1.10): looked up when an attempt starts.

use std::path::Path;

/// Each secret by its name: a file of `dir`, else this process' environment.
///
/// # Errors
/// What the model reads, where one is missing.
pub fn look_up(dir: Option<&Path>, names: &[String]) -> Result<Vec<(String, String)>, String> {
    let read = |name: &String| {
        let file = dir.map(|dir| dir.join(name));
        let value = file
            .and_then(|path| std::fs::read_to_string(path).ok())
            .map(|text| text.trim_end_matches('\n').to_owned())
            .or_else(|| std::env::var(name).ok());
        value
            .map(|value| (name.clone(), value))
            .ok_or_else(|| format!("the secret {name} is not on this worker"))
    };
    names.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::look_up;

    #[test]
    fn a_file_comes_first_and_a_missing_secret_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("TOKEN_OF_A_TEST"), "s3cret\n").unwrap();
        let names = ["TOKEN_OF_A_TEST".to_owned()];
        let found = look_up(Some(dir.path()), &names).unwrap();
        assert_eq!(found, [("TOKEN_OF_A_TEST".to_owned(), "s3cret".to_owned())]);
        let missing = look_up(None, &names).unwrap_err();
        assert_eq!(missing, "the secret TOKEN_OF_A_TEST is not on this worker");
    }
}
