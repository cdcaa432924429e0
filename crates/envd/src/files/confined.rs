//! Files below one directory, for the runtime API.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;

use super::multipart::{self, Multipart};
use super::target::Target;
use super::upload::drain;
use super::{Files, RequestError};
use crate::response::HttpResponse;
use crate::user::User;

/// Largest upload, in bytes.
const MAX_UPLOAD: u64 = 1 << 30;

/// Limit of symlinks in a path, the kernel's.
const MAX_LINKS: usize = 40;

/// Longest path accepted, the kernel's limit.
const MAX_PATH: usize = 4096;

/// Makes a path below `base` absolute and resolves its symlinks; it need not exist. Leading slashes are
/// ignored. Blocking.
///
/// # Errors
/// 403 if it leads out of `base`, or is no path.
pub(crate) fn locate(base: &Path, asked: &[u8]) -> Result<PathBuf, RequestError> {
    let denied = || RequestError::new(StatusCode::FORBIDDEN, "Access denied");
    if asked.contains(&0) || asked.len() > MAX_PATH {
        return Err(denied());
    }
    let base = std::fs::canonicalize(base).unwrap_or_else(|_| base.to_owned());
    let mut at = base.clone();
    let mut left: VecDeque<OsString> = parts(Path::new(OsStr::from_bytes(asked))).collect();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let Ok(target) = std::fs::read_link(&next) else {
            at = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(denied());
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            left.push_front(part);
        }
    }
    if at.starts_with(&base) {
        Ok(at)
    } else {
        Err(denied())
    }
}

/// The parts of a path that change where it leads.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

impl Files {
    /// Stores the part `file` of a form, below `base` at the part's file name, which is returned.
    ///
    /// # Errors
    /// 403 if the name leads out of `base`, 422 if the form has no such part, and those of an upload.
    pub(crate) async fn receive(
        &self,
        base: PathBuf,
        user: User,
        request: Request<Incoming>,
    ) -> Result<String, RequestError> {
        let boundary = checked_form(request.headers());
        let body = request.into_body();
        match boundary {
            Ok(boundary) => {
                let write = move |pieces| {
                    store(
                        Multipart::new(Bounded::new(pieces), &boundary),
                        &base,
                        &user,
                    )
                };
                self.write(body, write).await
            }
            Err(error) => {
                drain(body);
                Err(error)
            }
        }
    }

    /// Sends the file at this path below `base`.
    ///
    /// # Errors
    /// 403 if the path leads out of `base`, and those of a download.
    pub(crate) async fn fetch(
        &self,
        base: PathBuf,
        asked: Vec<u8>,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, RequestError> {
        let located = tokio::task::spawn_blocking(move || locate(&base, &asked)).await;
        let path = located.map_err(|_| RequestError::shutting_down())??;
        let mut answer = self.send(path, headers).await?;
        // Browsers must not render files that a sandbox made.
        let kind = HeaderValue::from_static("application/octet-stream");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(answer)
    }
}

/// The boundary of a form of acceptable length.
fn checked_form(headers: &HeaderMap) -> Result<String, RequestError> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let length = text(CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if length.is_some_and(|length: u64| length > MAX_UPLOAD) {
        let message = TooLarge.to_string();
        return Err(RequestError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let kind = text(CONTENT_TYPE).unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with("multipart/form-data") {
        return Err(no_file());
    }
    Ok(multipart::boundary(kind)?)
}

fn no_file() -> RequestError {
    RequestError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "the form has no file named \"file\"",
    )
}

fn store(mut form: Multipart<impl Read>, base: &Path, user: &User) -> Result<String, RequestError> {
    let mut stored = None;
    // To the end, so that an incomplete form is an error.
    while let Some(part) = form.next_part()? {
        if stored.is_some() || part.name.as_deref() != Some("file") {
            continue;
        }
        let name = part.filename.ok_or_else(no_file)?;
        let target = Target {
            path: locate(base, name.as_bytes())?,
            user,
            metadata: &BTreeMap::new(),
            announced: None,
        };
        target.write(&mut form)?;
        stored = Some(name);
    }
    stored.ok_or_else(no_file)
}

/// The body exceeds [`MAX_UPLOAD`].
#[derive(Debug, thiserror::Error)]
#[error("the upload is larger than {MAX_UPLOAD} bytes")]
struct TooLarge;

/// A body that fails after [`MAX_UPLOAD`] bytes.
struct Bounded<R> {
    body: R,
    left: u64,
}

impl<R> Bounded<R> {
    fn new(body: R) -> Self {
        Self {
            body,
            left: MAX_UPLOAD,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, TooLarge))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn located(base: &Path, asked: &str) -> Option<String> {
        let path = locate(base, asked.as_bytes()).ok()?;
        let below = path.strip_prefix(base.canonicalize().unwrap()).unwrap();
        Some(below.to_str().unwrap().to_owned())
    }

    #[test]
    fn paths_stay_below_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        for (asked, expected) in [
            ("", Some("")),
            (".", Some("")),
            ("a/b", Some("a/b")),
            ("/etc/passwd", Some("etc/passwd")),
            ("//a//./b/", Some("a/b")),
            ("a/../b", Some("b")),
            ("../base/c", Some("c")),
            ("..", None),
            ("a/../../b", None),
            ("../base2", None),
            ("a\0b", None),
        ] {
            assert_eq!(located(&base, asked).as_deref(), expected, "{asked:?}");
        }
        assert!(locate(&base, &[b'x'; MAX_PATH + 1]).is_err());
    }

    #[test]
    fn symlinks_stay_below_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir_all(base.join("real")).unwrap();
        for (link, target) in [
            ("inside", "real"),
            ("up", "real/../.."),
            ("absolute", "/etc"),
            ("dangling", "/no/such/place"),
            ("missing", "not-yet"),
            ("cycle", "cycle"),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        for (asked, expected) in [
            ("inside/f", Some("real/f")),
            ("inside/../f", Some("f")),
            ("missing", Some("not-yet")),
            ("up", None),
            ("absolute/passwd", None),
            ("dangling", None),
            ("cycle", None),
        ] {
            assert_eq!(located(&base, asked).as_deref(), expected, "{asked:?}");
        }
    }

    #[test]
    fn a_body_fails_beyond_its_bound() {
        let mut bounded = Bounded {
            body: &b"12345"[..],
            left: 4,
        };
        let error = bounded.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_directory(asked in "[a./]{0,40}") {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().canonicalize().unwrap();
            if let Ok(path) = locate(&base, asked.as_bytes()) {
                prop_assert!(path.starts_with(&base));
                prop_assert!(!path.components().any(|part| part == Component::ParentDir));
            }
        }
    }
}
