use super::*;

async fn lines(pieces: &[&[u8]], offset: usize, limit: usize) -> Result<Part, ToolError> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|p| Ok(Bytes::copy_from_slice(p)))
        .collect();
    let file = FileContents {
        size: None,
        contents: stream::iter(pieces).boxed(),
    };
    Lines::new(offset, limit).read(file).await
}

fn text(text: &str, next: Option<usize>) -> Part {
    Part::Text {
        text: text.to_owned(),
        next,
    }
}

#[tokio::test]
async fn lines_are_picked_wherever_the_pieces_end() {
    for pieces in [
        &[&b"a\nb\nc\n"[..]][..],
        &[b"a", b"\nb\nc", b"\n"],
        &[b"a\nb", b"\n", b"c\n"],
    ] {
        let read = async |offset, limit| lines(pieces, offset, limit).await.unwrap();
        assert_eq!(read(1, usize::MAX).await, text("a\nb\nc\n", None));
        assert_eq!(read(2, 1).await, text("b\n", Some(3)));
        assert_eq!(read(3, 9).await, text("c\n", None));
    }
    assert!(lines(&[b"a\n"], 5, 1).await.is_err());
    assert_eq!(lines(&[], 1, 1).await.unwrap(), text("", None));
}

#[tokio::test]
async fn a_large_file_is_cut_between_lines_and_a_long_line_in_itself() {
    let line = vec![b'x'; TEXT_MAX / 2];
    let pieces: [&[u8]; 5] = [&line, b"\n", &line[2..], b"\n", b"rest\n"];
    let Part::Text { text, next } = lines(&pieces, 1, usize::MAX).await.unwrap() else {
        panic!("no text");
    };
    assert_eq!((text.len(), next), (TEXT_MAX, Some(3)));
    let long = vec![b'x'; TEXT_MAX + 1];
    let Part::Text { text, next } = lines(&[&long], 1, usize::MAX).await.unwrap() else {
        panic!("no text");
    };
    assert_eq!((text.len(), next), (TEXT_MAX, Some(2)));
}

#[tokio::test]
async fn what_is_no_text_is_told_by_its_beginning() {
    assert_eq!(
        lines(&[b"a\0b"], 1, 9).await.unwrap(),
        Part::Other(b"a\0b".to_vec())
    );
    let image = b"\x89PNG\r\n\x1a\nrest";
    assert_eq!(
        lines(&[image], 1, 9).await.unwrap(),
        Part::Other(image.to_vec())
    );
}

#[test]
fn an_edit_replaces_a_text_that_occurs_once() {
    let edit = |old, new, all| replaced("one two two", old, new, all);
    assert_eq!(edit("one", "1", false), Ok(("1 two two".to_owned(), 1)));
    assert_eq!(edit("two", "2", true), Ok(("one 2 2".to_owned(), 2)));
    assert!(edit("two", "2", false).unwrap_err().contains("2 times"));
    assert!(
        edit("three", "3", false)
            .unwrap_err()
            .contains("not in the file")
    );
    assert!(edit("", "3", false).is_err() && edit("one", "one", false).is_err());
}
