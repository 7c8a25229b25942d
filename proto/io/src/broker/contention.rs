//! An answer of replicated streams alone: another store of the same subject is still being agreed on.

use async_nats::jetstream;
use std::error::Error;

/// Whether a compare-and-set was refused because another one of the same subject is under way: nothing
/// was stored, and whether the other one will be is not known yet. To be asked again.
pub fn is_under_way(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<jetstream::Error>() {
            let code = error.error_code();
            return code == jetstream::ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::jetstream::context::{PublishError, PublishErrorKind};
    use async_nats::jetstream::kv::UpdateError;

    fn refused(code: u64) -> PublishError {
        let error = serde_json::json!({"code": 400, "err_code": code, "description": "wrong last"});
        let error: jetstream::Error = serde_json::from_value(error).unwrap();
        PublishError::with_source(PublishErrorKind::Other, error)
    }

    #[test]
    fn it_is_known_by_its_code_through_every_layer() {
        assert!(is_under_way(&refused(10164)));
        assert!(is_under_way(&UpdateError::from(refused(10164))));
        assert!(!is_under_way(&refused(10071)));
        assert!(!is_under_way(&PublishError::new(PublishErrorKind::TimedOut)));
    }
}
