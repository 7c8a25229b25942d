//! stub
#![allow(missing_docs)]
pub mod cli {
    pub mod dev;
}
