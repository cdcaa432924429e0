//! A file of tokens, which is read again when it changes.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;

/// How often the file is read.
const INTERVAL: Duration = Duration::from_secs(10);

/// The shortest token: others can be guessed.
const SHORTEST: usize = 16;

/// Why a file of tokens is unusable.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTokens {
    /// It cannot be read.
    #[error("cannot read the tokens in {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// It has no token.
    #[error("{} has no token: write one on each line", .0.display())]
    Empty(PathBuf),
    /// One of its tokens is too short.
    #[error("line {line} of {} has a token of less than {SHORTEST} characters", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// The digest of a token. Comparing digests reveals nothing about tokens.
type TokenDigest = [u8; 32];

/// The tokens of a file.
pub(crate) struct TokenFile {
    tokens: Arc<RwLock<HashSet<TokenDigest>>>,
    following: AbortHandle,
}

impl TokenFile {
    /// Reads the file, and keeps reading it.
    ///
    /// # Errors
    /// See [`InvalidTokens`]. Later errors are logged, and the tokens stay.
    pub(crate) async fn open(path: PathBuf) -> Result<Self, InvalidTokens> {
        let tokens = Arc::new(RwLock::new(read(&path).await?));
        let following = tokio::spawn(follow(path, tokens.clone())).abort_handle();
        Ok(Self { tokens, following })
    }

    /// Whether the file has this token.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.tokens.read().contains(&digest(token))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        self.following.abort();
    }
}

async fn follow(path: PathBuf, tokens: Arc<RwLock<HashSet<TokenDigest>>>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        match read(&path).await {
            Ok(read) => *tokens.write() = read,
            Err(error) => tracing::warn!(%error, "keeping the tokens"),
        }
    }
}

/// The tokens of a file: one on each line. Empty lines and those that begin with `#` are skipped.
async fn read(path: &Path) -> Result<HashSet<TokenDigest>, InvalidTokens> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| InvalidTokens::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    let mut tokens = HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let token = line.trim();
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        if token.len() < SHORTEST {
            return Err(InvalidTokens::Short {
                path: path.to_owned(),
                line: index + 1,
            });
        }
        tokens.insert(digest(token));
    }
    if tokens.is_empty() {
        return Err(InvalidTokens::Empty(path.to_owned()));
    }
    Ok(tokens)
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "0123456789abcdef";
    const SECOND: &str = "fedcba9876543210";

    #[tokio::test]
    async fn only_the_tokens_of_the_file_are_admitted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, format!("# ours\n\n {FIRST} \n{SECOND}")).unwrap();
        let file = TokenFile::open(path).await.unwrap();
        assert!(file.has(FIRST) && file.has(SECOND));
        for other in ["", "# ours", "0123456789abcdeF", &FIRST[1..]] {
            assert!(!file.has(other), "{other}");
        }
    }

    #[tokio::test]
    async fn an_unusable_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let missing = TokenFile::open(path.clone()).await.err().unwrap();
        assert!(matches!(missing, InvalidTokens::Unreadable { .. }));
        std::fs::write(&path, "# nothing\n").unwrap();
        let empty = TokenFile::open(path.clone()).await.err().unwrap();
        assert!(matches!(empty, InvalidTokens::Empty(_)));
        std::fs::write(&path, format!("{FIRST}\nsecret\n")).unwrap();
        let short = TokenFile::open(path.clone()).await.err().unwrap();
        assert!(matches!(short, InvalidTokens::Short { line: 2, .. }));
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, FIRST).unwrap();
        let file = TokenFile::open(path.clone()).await.unwrap();
        tokio::time::pause();
        std::fs::write(&path, SECOND).unwrap();
        while !file.has(SECOND) {
            tokio::time::advance(INTERVAL).await;
            tokio::task::yield_now().await;
        }
        assert!(!file.has(FIRST));
        std::fs::write(&path, "").unwrap();
        let read = read(&path).await;
        assert!(read.is_err());
        assert!(file.has(SECOND));
    }
}
