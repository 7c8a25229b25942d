//! Python packages, in environments of their own that are kept between runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// `skip`, or the Python to make the environment with.
const PYTHON_KEY: &str = "TOOLFLEET_TEST_PYTHON";
const MEND: &str = "install Python 3.10 or newer with its venv module (Debian: apt-get install \
                    python3 python3-venv) and let pip reach its index, or set \
                    TOOLFLEET_TEST_PYTHON=skip";

/// An interpreter once it is made, or why it cannot be.
pub type Made = OnceLock<Result<PathBuf, String>>;

/// The files of the providers' check.
pub fn providers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("providers")
}

/// The interpreter of the environment with the packages of the providers' check. `None`: tests
/// of it are to be skipped. Panics where it cannot be made, and says what to install.
pub fn python() -> Option<PathBuf> {
    static MADE: Made = OnceLock::new();
    interpreter(&MADE, &providers(), "providers-venv")
}

/// As [`python`], with the packages of a folder's `requirements.txt`: made once in a run, and kept
/// under `name`.
pub fn interpreter(made: &Made, folder: &Path, name: &str) -> Option<PathBuf> {
    let base = std::env::var(PYTHON_KEY).unwrap_or_else(|_| "python3".to_owned());
    if base == "skip" {
        eprintln!("{PYTHON_KEY}=skip: nothing was checked with Python's packages");
        return None;
    }
    match made.get_or_init(|| environment(&base, folder, name)) {
        Ok(python) => Some(python.clone()),
        Err(why) => panic!("{why}; {MEND}"),
    }
}

/// Finds the environment, or makes it. What it was made of stands in it.
fn environment(base: &str, folder: &Path, name: &str) -> Result<PathBuf, String> {
    let file = folder.join("requirements.txt");
    let wanted =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let version = run(Command::new(base).arg("--version"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, stamp) = (home.join("bin/python"), home.join("made-of"));
    let made_of = format!("{version}\n{wanted}");
    // Only what was made to its end has the stamp.
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == made_of) {
        return Ok(python);
    }
    run(Command::new(base).args(["-m", "venv", "--clear"]).arg(&home))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(&file))?;
    std::fs::write(&stamp, made_of).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<Output, String> {
    let told = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{told} did not start: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{told} ended with {}: {}", output.status, text.trim()))
}
