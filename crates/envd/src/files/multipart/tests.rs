use proptest::prelude::*;

use super::*;

/// A reader that returns at most `piece` bytes at a time.
struct Trickle<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.min(self.rest.len()).min(buffer.len());
        let (now, later) = self.rest.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.rest = later;
        Ok(count)
    }
}

type Parts = Vec<(Option<String>, Vec<u8>)>;

fn parse(body: &[u8], piece: usize) -> Result<Parts, MultipartError> {
    let mut multipart = Multipart::new(Trickle { rest: body, piece }, "B");
    let mut parts = Vec::new();
    while let Some(named) = multipart.next_part()? {
        let mut contents = Vec::new();
        multipart.read_to_end(&mut contents)?;
        parts.push((named.filename, contents));
    }
    Ok(parts)
}

fn part(name: &str, contents: &[u8]) -> (Option<String>, Vec<u8>) {
    (Some(name.to_owned()), contents.to_vec())
}

const TWO: &[u8] = b"preamble\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; \
    filename=\"a\"\r\nContent-Type: x\r\n\r\nfirst\r\n-- B\r\n\r\n--B  \r\n\
    content-disposition: f; filename=\"b\"\r\n\r\n\r\n--B--\r\nepilogue";

#[test]
fn parts_are_parsed_at_any_chunk_size() {
    let expected = [part("a", b"first\r\n-- B\r\n"), part("b", b"")];
    for piece in [1, 2, 3, 7, 1000] {
        assert_eq!(parse(TWO, piece).unwrap(), expected, "{piece}");
    }
}

#[test]
fn a_part_may_lack_headers_or_contents_or_both() {
    let body = b"--B\r\n\r\nx\r\n--B\r\nContent-Disposition: f; filename=e\r\n\r\n--B--";
    assert_eq!(
        parse(body, 5).unwrap(),
        [(None, b"x".to_vec()), part("e", b"")]
    );
}

#[test]
fn the_unread_rest_of_a_part_is_skipped() {
    let mut multipart = Multipart::new(TWO, "B");
    assert_eq!(
        multipart.next_part().unwrap().unwrap().filename.as_deref(),
        Some("a")
    );
    assert_eq!(
        multipart.next_part().unwrap().unwrap().filename.as_deref(),
        Some("b")
    );
    assert_eq!(multipart.next_part().unwrap(), None);
    assert_eq!(multipart.next_part().unwrap(), None);
}

#[test]
fn a_truncated_body_is_an_error() {
    let whole = TWO.len() - "--\r\nepilogue".len();
    for end in 0..whole {
        let result = parse(&TWO[..end], 64);
        assert!(result.is_err(), "{end}: {result:?}");
    }
}

#[test]
fn headers_have_a_bound() {
    let body = format!("--B\r\nX: {}\r\n\r\n\r\n--B--", "y".repeat(MAX_HEADERS));
    let result = parse(body.as_bytes(), 4096);
    assert!(matches!(result, Err(MultipartError::LongHeaders)));
    let endless = format!("--B\r\n{}", "X: y\r\n".repeat(MAX_HEADERS));
    let result = parse(endless.as_bytes(), 4096);
    assert!(matches!(result, Err(MultipartError::LongHeaders)));
}

#[test]
fn a_longer_boundary_is_not_a_delimiter() {
    let result = parse(b"--B\r\n\r\nx\r\n--BB\r\n\r\ny\r\n--B--", 64);
    assert!(matches!(result, Err(MultipartError::Malformed)));
}

#[test]
fn the_boundary_is_taken_from_the_content_type() {
    for (header, expected) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        (
            "multipart/form-data; charset=x; Boundary=\"a b\"",
            Some("a b"),
        ),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
    ] {
        assert_eq!(boundary(header).ok().as_deref(), expected, "{header}");
    }
    let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
    assert!(boundary(&long).is_err());
}

proptest! {
    #[test]
    fn multipart_bodies_round_trip(
        contents in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), any::<u8>()], 0..300),
            0..5),
        piece in 1usize..50,
    ) {
        let delimiter = b"\r\n--B";
        prop_assume!(contents.iter().all(|contents| {
            let framed = [b"\r\n".as_slice(), contents].concat();
            memchr::memmem::find(&framed, delimiter).is_none()
        }));
        let mut body = Vec::new();
        for (number, contents) in contents.iter().enumerate() {
            body.extend_from_slice(b"\r\n--B\r\n");
            body.extend_from_slice(
                format!("Content-Disposition: form-data; filename=\"{number}\"\r\n\r\n").as_bytes());
            body.extend_from_slice(contents);
        }
        body.extend_from_slice(b"\r\n--B--\r\n");
        let expected: Parts = contents.iter().enumerate()
            .map(|(number, contents)| part(&number.to_string(), contents)).collect();
        prop_assert_eq!(parse(&body, piece).unwrap(), expected);
    }

    #[test]
    fn no_body_panics_the_parser(
        body in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'B'), any::<u8>()], 0..400),
        piece in 1usize..50,
    ) {
        let _ = parse(&body, piece);
    }
}
