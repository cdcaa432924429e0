//! Many writes that are alike, in batches that grow.

use futures_util::stream::{self, StreamExt};

use crate::failure::Failure;

/// How many requests of one pass are under way at once.
pub(super) const AT_ONCE: usize = 16;

/// The results of the batches of one pass.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// How many writes were made.
    pub(super) count: usize,
    /// Whether there was nothing left to write to.
    pub(super) exhausted: bool,
    /// Why the last batch failed.
    pub(super) failure: Option<Failure>,
}

/// Writes `count` times: a small batch first, then twice as many each time. A cluster that refuses one batch is not
/// asked for the next. `write` returns whether there was something to write to.
pub(super) async fn grow<F, R>(count: usize, first: usize, write: F) -> Written
where
    F: Fn() -> R,
    R: Future<Output = Result<bool, Failure>>,
{
    let mut written = Written::default();
    let mut batch = first.max(1);
    while written.count < count && written.failure.is_none() && !written.exhausted {
        let next = batch.min(count - written.count);
        let results: Vec<Result<bool, Failure>> = stream::iter(0..next)
            .map(|_| write())
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for result in results {
            match result {
                Ok(true) => written.count += 1,
                Ok(false) => written.exhausted = true,
                Err(failure) => written.failure = Some(failure),
            }
        }
        batch *= 2;
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The writes that were tried, of which the first `good` succeed.
    async fn tried(count: usize, good: usize, last: Result<bool, Failure>) -> (Written, usize) {
        let asked = AtomicUsize::new(0);
        let refuses = last.is_err();
        let written = grow(count, 5, || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                match number < good {
                    true => Ok(true),
                    false if refuses => Err(Failure::Refused("full".to_owned())),
                    false => Ok(false),
                }
            }
        })
        .await;
        (written, asked.into_inner())
    }

    #[tokio::test]
    async fn all_are_written() {
        let (written, asked) = tried(33, 100, Ok(false)).await;
        assert_eq!((written.count, asked), (33, 33));
        assert!(!written.exhausted && written.failure.is_none());
    }

    #[tokio::test]
    async fn a_batch_that_fails_is_the_last() {
        let refused = Err(Failure::Refused("full".to_owned()));
        let (written, asked) = tried(100, 7, refused).await;
        assert_eq!((written.count, asked), (7, 15));
        assert!(written.failure.is_some());
        let (written, asked) = tried(100, 0, Ok(false)).await;
        assert_eq!((written.count, asked, written.exhausted), (0, 5, true));
    }
}
