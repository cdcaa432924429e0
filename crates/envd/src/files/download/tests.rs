use std::path::PathBuf;

use super::*;

fn file(contents: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file.rewind().unwrap();
    file
}

async fn all(pieces: impl Pieces) -> io::Result<Vec<u8>> {
    let mut pieces = std::pin::pin!(read_ahead(pieces));
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

#[tokio::test]
async fn a_file_is_read_to_its_announced_length_or_its_end() {
    let contents: Vec<u8> = (0..READ_SIZE * 2 + 7)
        .map(|index: usize| index.to_le_bytes()[0])
        .collect();
    let promised = FileBytes::new(file(&contents), Some(READ_SIZE as u64 + 3), &Arc::default());
    assert_eq!(all(promised).await.unwrap(), contents[..READ_SIZE + 3]);
    let whole = FileBytes::new(file(&contents), None, &Arc::default());
    assert_eq!(all(whole).await.unwrap(), contents);
}

#[tokio::test]
async fn a_file_truncated_below_its_announced_length_is_an_error() {
    let short = FileBytes::new(file(b"abc"), Some(4), &Arc::default());
    let error = all(short).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn packed_bytes_are_the_same_when_unpacked() {
    for size in [0, 10, READ_SIZE * 3 + 1] {
        let contents: Vec<u8> = (0..size)
            .map(|index: usize| (index % 251).to_le_bytes()[0])
            .collect();
        let packed = all(Gzipped {
            bytes: FileBytes::new(file(&contents), None, &Arc::default()),
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        });
        let mut unpacked = Vec::new();
        let packed = packed.await.unwrap();
        let mut decoder = flate2::read::GzDecoder::new(packed.as_slice());
        decoder.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, contents);
    }
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let status = |path: PathBuf| open(&path).err().map(|error| error.status);
    assert_eq!(status(pipe), Some(StatusCode::BAD_REQUEST));
    assert_eq!(status(dir.path().to_owned()), Some(StatusCode::BAD_REQUEST));
    assert_eq!(status("/dev/zero".into()), Some(StatusCode::BAD_REQUEST));
    assert_eq!(status(dir.path().join("none")), Some(StatusCode::NOT_FOUND));
    let below = dir.path().join("f/g");
    std::fs::write(dir.path().join("f"), "").unwrap();
    assert_eq!(status(below), Some(StatusCode::NOT_FOUND));
}
