//! The files of a sandbox that return to its session.
//!
//! Source code, configuration, documentation and five kinds of media return. Generated files do not.
//! `.gitignore` is a separate rule, because it depends on other files.

use crate::path::SessionPath;

/// The largest file that returns by default, in bytes.
pub const FILE_MAX: u64 = 10 << 20;

/// Directories whose files never return: dependencies, build artifacts, caches, logs and temporary files. `.git` is
/// among them, because its objects are binary.
pub const DIRECTORIES: &[&str] = &[
    ".cache",
    ".git",
    ".gradle",
    ".hg",
    ".mypy_cache",
    ".next",
    ".npm",
    ".nuxt",
    ".pnpm-store",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "log",
    "logs",
    "node_modules",
    "target",
    "tmp",
    "user_venv",
    "venv",
];

/// Endings of files that never return: build artifacts and temporary files.
const ENDINGS: &[&str] = &[
    ".a", ".class", ".dll", ".dylib", ".exe", ".o", ".obj", ".pyc", ".pyo", ".so", ".swo", ".swp",
    ".tmp", "~",
];

/// Beginnings of names of temporary files.
const BEGINNINGS: &[&str] = &[".#", ".~"];

/// Media that return, by their ending and the bytes that they begin with.
const MEDIA: &[(&str, &[u8])] = &[
    ("png", b"\x89PNG\r\n\x1a\n"),
    ("jpg", b"\xff\xd8\xff"),
    ("jpeg", b"\xff\xd8\xff"),
    ("webp", b"RIFF"),
    ("gif", b"GIF8"),
    ("pdf", b"%PDF-"),
];

/// Whether files below a directory of this name may return.
#[must_use]
pub fn enters(directory: &str) -> bool {
    !DIRECTORIES.contains(&directory)
}

/// Whether a file at this path may return, regardless of its contents.
#[must_use]
pub fn may_return(path: &SessionPath, size: u64, most: u64) -> bool {
    let mut directories = path.names().rev().skip(1);
    let name = path.name().to_ascii_lowercase();
    size <= most
        && directories.all(enters)
        && !ENDINGS.iter().any(|ending| name.ends_with(ending))
        && !BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
}

/// Whether a file with these contents returns: text, or one of the media.
#[must_use]
pub fn returns(path: &SessionPath, contents: &[u8]) -> bool {
    let mut check = Contents::of(path);
    check.update(contents);
    check.returns()
}

/// The same for contents that come in pieces.
#[derive(Debug)]
pub struct Contents {
    /// The magic bytes of a media file, if the path has such a type.
    magic: Option<&'static [u8]>,
    /// The first bytes, until there are enough of them to compare.
    first: Vec<u8>,
    /// Whether all of it so far is text: UTF-8 without NUL.
    is_text: bool,
    /// The beginning of a character that a piece ended in.
    partial: Vec<u8>,
}

impl Contents {
    /// A check of the file at this path.
    #[must_use]
    pub fn of(path: &SessionPath) -> Self {
        let extension = path.extension().map(str::to_ascii_lowercase);
        let mut media = MEDIA.iter();
        let media = extension.and_then(|extension| media.find(|(name, _)| *name == extension));
        Self {
            magic: media.map(|(_, magic)| *magic),
            first: Vec::new(),
            is_text: true,
            partial: Vec::new(),
        }
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        let wanted = self.magic.map_or(0, <[u8]>::len) - self.first.len();
        self.first.extend(piece.iter().take(wanted));
        if !self.is_text {
            return;
        }
        if self.partial.is_empty() {
            self.text(piece);
        } else {
            // A character has at most four bytes: the rest of it, and then what follows it.
            let missing = (4 - self.partial.len()).min(piece.len());
            let (rest, after) = piece.split_at(missing);
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(rest);
            self.text(&joined);
            if !self.partial.is_empty() {
                let mut joined = std::mem::take(&mut self.partial);
                joined.extend_from_slice(after);
                self.text(&joined);
            } else {
                self.text(after);
            }
        }
    }

    fn text(&mut self, piece: &[u8]) {
        self.is_text &= !piece.contains(&0);
        if let Err(error) = std::str::from_utf8(piece) {
            self.is_text &= error.error_len().is_none();
            self.partial = piece
                .get(error.valid_up_to()..)
                .unwrap_or_default()
                .to_vec();
        }
    }

    /// Whether contents of the pieces so far return.
    #[must_use]
    pub fn returns(&self) -> bool {
        let is_media = self.magic.is_some_and(|magic| magic == self.first);
        is_media || (self.is_text && self.partial.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    fn both(text: &str, contents: &[u8]) -> bool {
        may_return(&path(text), contents.len() as u64, FILE_MAX) && returns(&path(text), contents)
    }

    #[test]
    fn r2_039_r2_040_r2_041_r2_042_r2_043_text_returns() {
        for name in [
            "a.py", "b.rs", "c.ts", "d.c", "e.go", "f.sh", "g.json", "h.yaml", "i.toml", "j.md",
            "k.txt", "Makefile", ".env", "ä.txt", "empty",
        ] {
            assert!(both(name, "text: ä\n".as_bytes()), "{name}");
            assert!(both(&format!("deep/down/{name}"), b""), "{name}");
        }
    }

    #[test]
    fn r2_044_r2_045_r2_046_r2_047_r2_048_media_return() {
        for (name, contents) in [
            ("a.png", b"\x89PNG\r\n\x1a\n\0\0".as_slice()),
            ("a.jpg", b"\xff\xd8\xff\xe0\0"),
            ("a.JPEG", b"\xff\xd8\xff\0"),
            ("a.webp", b"RIFF\0\0\0\0WEBP"),
            ("a.gif", b"GIF89a\0"),
            ("a.pdf", b"%PDF-1.7\n\xff\0"),
        ] {
            assert!(both(name, contents), "{name}");
            assert!(!both("a.bin", contents), "{name} as binary");
            assert!(!both(name, b"\0\x01\x02"), "{name} is another thing");
        }
    }

    #[test]
    fn r2_049_to_r2_051_what_can_be_made_again_does_not_return() {
        for name in [
            "target/debug/x.rs",
            "dist/a.js",
            "build/a.js",
            "a.o",
            "A.class",
            "__pycache__/a.py",
            "a.pyc",
            "node_modules/x/index.js",
            "a/node_modules/x.js",
            ".venv/x.py",
            "a/venv/x.py",
            "user_venv/x.py",
            ".git/config",
        ] {
            assert!(!both(name, b"text"), "{name}");
        }
        assert!(
            both("targets/a.rs", b"text")
                && both("src/target.rs", b"text")
                && both("build", b"text")
        );
    }

    #[test]
    fn r2_052_large_and_binary_files_do_not_return() {
        assert!(!may_return(&path("a.txt"), FILE_MAX + 1, FILE_MAX));
        assert!(may_return(&path("a.txt"), FILE_MAX, FILE_MAX));
        assert!(!both("a.dat", b"\x7fELF\0\0") && !both("a.txt", b"\xff\xfe"));
    }

    proptest::proptest! {
        #[test]
        fn contents_in_pieces_are_judged_as_a_whole(
            text in "[a\u{e4}\u{20ac}\u{1F600}\\x00]{0,8}",
            broken in proptest::option::of(proptest::arbitrary::any::<u8>()),
            cuts in proptest::collection::vec(0usize..6, 0..12),
        ) {
            let mut bytes = text.into_bytes();
            bytes.extend(broken);
            let whole = !bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok();
            let mut check = Contents::of(&path("a.txt"));
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                check.update(piece);
                rest = after;
            }
            check.update(rest);
            proptest::prop_assert_eq!(check.returns(), whole);
            proptest::prop_assert_eq!(returns(&path("a.txt"), &bytes), whole);
        }
    }

    #[test]
    fn r2_053_r2_054_temporary_files_and_directories_of_logs_do_not_return() {
        for name in [
            "a.tmp",
            ".a.swp",
            "a~",
            ".#a",
            "tmp/a",
            "logs/a.txt",
            "a/log/b.txt",
        ] {
            assert!(!both(name, b"text"), "{name}");
        }
        assert!(both("server.log", b"text"));
    }
}
