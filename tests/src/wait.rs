//! Waiting for a condition that has a name and a bound.

use anyhow::bail;
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks again and again until `look` answers. `what` names the condition in the error that comes
/// when `within` is over.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let looking = async {
        loop {
            if let Some(answer) = look().await {
                return answer;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(within, looking).await {
        Ok(answer) => Ok(answer),
        Err(_) => bail!("waited {within:?} in vain until {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_never_holds_is_named() {
        let error = until("pigs fly", Duration::from_millis(30), async || None::<()>).await;
        assert!(error.unwrap_err().to_string().contains("pigs fly"));
    }

    #[tokio::test]
    async fn it_looks_again() {
        let mut looks = 0;
        let answer = until("the third look", Duration::from_secs(5), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(answer.await.unwrap(), 3);
    }
}
