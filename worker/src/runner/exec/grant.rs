//! What a program that is shut in may use (CONTRACT 5.11), as a worker names it to a guard. Also compiled
//! into the guard, which links nothing of the worker.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A file, or a folder with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It may be read, and programs in it started.
    Read(PathBuf),
    /// It may be changed as well.
    Write(PathBuf),
}

impl Grant {
    /// What is granted.
    pub fn path(&self) -> &Path {
        match self {
            Grant::Read(path) | Grant::Write(path) => path,
        }
    }

    /// One word, e.g. `read=/usr`.
    pub fn encode(&self) -> OsString {
        let mut word = match self {
            Grant::Read(_) => b"read=".to_vec(),
            Grant::Write(_) => b"write=".to_vec(),
        };
        word.extend_from_slice(self.path().as_os_str().as_bytes());
        OsString::from_vec(word)
    }

    /// `None`: no such grant.
    pub fn decode(word: &OsStr) -> Option<Grant> {
        let bytes = word.as_bytes();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        if let Some(rest) = bytes.strip_prefix(b"read=") {
            return Some(Grant::Read(path(rest)));
        }
        bytes.strip_prefix(b"write=").map(|rest| Grant::Write(path(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_read_back_whatever_the_path_and_other_words_are_none() {
        let odd = PathBuf::from(OsString::from_vec(b"/a=b/\xff --".to_vec()));
        for grant in [Grant::Read("/usr".into()), Grant::Write("/".into()), Grant::Read(odd)] {
            assert_eq!(Grant::decode(&grant.encode()), Some(grant));
        }
        for word in ["", "read", "memory=1", "--"] {
            assert_eq!(Grant::decode(OsStr::new(word)), None, "{word}");
        }
    }
}
