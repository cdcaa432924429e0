//! The compression of a layer, detected from its first bytes.

use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// How much is read at a time from a compressed layer.
const BUFFER: usize = 128 * 1024;

/// The largest zstd window, as a power of two: the default limit of the `zstd` tool.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a blob that starts with these four bytes is compressed.
pub(crate) fn is_compressed(first: &[u8]) -> bool {
    first.starts_with(&GZIP) || first.starts_with(&ZSTD)
}

/// Decompresses `source`.
///
/// The bytes decide, not the media type: archives made by hand often have a wrong one, and the
/// digests verify the result in either case.
pub(crate) fn decoded<'a>(
    mut source: impl Read + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut first = Vec::with_capacity(ZSTD.len());
    source
        .by_ref()
        .take(ZSTD.len() as u64)
        .read_to_end(&mut first)?;
    let (gzip, zstd) = (first.starts_with(&GZIP), first.starts_with(&ZSTD));
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(first).chain(source));
    if gzip {
        return Ok(Box::new(MultiGzDecoder::new(whole)));
    }
    if zstd {
        let mut decoder = zstd::Decoder::with_buffer(whole)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(whole))
}
