//! File contents.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::{Value, json};
use shoal_protocol::client::Upload;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::daemon::{Daemon, UID, USER, daemon};
use crate::http::Answer;

const RAW: (&str, &str) = ("content-type", "application/octet-stream");
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=BOUND");

impl Daemon {
    async fn upload(&self, query: &str, body: impl Into<Bytes>) -> Answer {
        self.upload_with(query, &[RAW], body).await
    }

    async fn upload_with(
        &self,
        query: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut ask = self.ask(Method::POST, &format!("/files?{query}"));
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send(body).await
    }

    async fn download(&self, query: &str, headers: &[(&str, &str)]) -> Answer {
        let mut ask = self.ask(Method::GET, &format!("/files?{query}"));
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send("").await
    }
}

fn form(parts: &[(&str, Option<&str>, &str)]) -> String {
    let mut body = String::new();
    for (name, filename, contents) in parts {
        body.push_str(&format!(
            "--BOUND\r\nContent-Disposition: form-data; name=\"{name}\""
        ));
        if let Some(filename) = filename {
            body.push_str(&format!("; filename=\"{filename}\""));
        }
        body.push_str(&format!("\r\n\r\n{contents}\r\n"));
    }
    body.push_str("--BOUND--\r\n");
    body
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn an_upload_belongs_to_its_user_with_default_modes() {
    let daemon = daemon!();
    let answer = daemon.upload("path=new/dir/f.txt", "hello").await;
    assert_eq!(answer.status, 200);
    let path = daemon.path("new/dir/f.txt");
    assert_eq!(
        answer.json(),
        json!([{"name": "f.txt", "path": path, "type": "file"}])
    );
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (UID, UID, 0o644)
    );
    let meta = std::fs::metadata(daemon.path("new")).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (UID, 0o755));

    // An existing file keeps its mode but changes its owner, as in E2B.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    chown(&path, Some(0), Some(0)).unwrap();
    daemon.upload("path=new/dir/f.txt", "x").await;
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.uid(), meta.mode() & 0o7777, meta.len()),
        (UID, 0o600, 1)
    );

    daemon
        .upload("path=/tmp/../tmp/envd-by-root&username=root", "x")
        .await;
    assert_eq!(std::fs::metadata("/tmp/envd-by-root").unwrap().uid(), 0);
    std::fs::remove_file("/tmp/envd-by-root").unwrap();
}

#[tokio::test]
async fn parts_are_written_to_their_file_name_or_the_query_path() {
    let daemon = daemon!();
    let absolute = daemon.path("abs/b");
    let body = form(&[
        ("file", Some("rel/a b.txt"), "A"),
        ("other", Some("ignored"), "I"),
        ("file", Some(&absolute), "B"),
    ]);
    let answer = daemon.upload_with("", &[FORM], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let names: Vec<Value> = answer.json().as_array().unwrap().clone();
    assert_eq!(names.len(), 2);
    assert_eq!(names[1]["path"], absolute.as_str());
    assert_eq!(
        std::fs::read_to_string(daemon.path("rel/a b.txt")).unwrap(),
        "A"
    );
    assert_eq!(std::fs::read_to_string(&absolute).unwrap(), "B");
    assert!(!daemon.home().join("ignored").exists());

    let body = form(&[("file", Some("elsewhere"), "C")]);
    daemon.upload_with("path=here", &[FORM], body).await;
    assert_eq!(std::fs::read_to_string(daemon.path("here")).unwrap(), "C");
}

#[tokio::test]
async fn invalid_uploads_are_rejected_with_400() {
    let daemon = daemon!();
    std::fs::create_dir(daemon.path("dir")).unwrap();
    std::fs::write(daemon.path("file"), "").unwrap();
    let twice = form(&[("file", Some("a"), ""), ("file", Some("./a"), "")]);
    let nameless = form(&[("file", None, "")]);
    for (query, headers, body) in [
        ("path=dir", vec![RAW], ""),
        ("path=file/below", vec![RAW], ""),
        ("path=~other/f", vec![RAW], ""),
        ("path=a%00b", vec![RAW], ""),
        ("", vec![RAW], ""),
        ("path=x", vec![("content-type", "text/plain")], ""),
        ("path=x", vec![], ""),
        ("path=x", vec![RAW, ("content-encoding", "br")], ""),
        (
            "path=x",
            vec![RAW, ("content-encoding", "gzip")],
            "not gzip",
        ),
        ("path=x", vec![("content-type", "multipart/form-data")], ""),
        ("", vec![FORM], "--BOUND\r\n"),
        ("", vec![FORM], &twice),
        ("", vec![FORM], &nameless),
        ("path=x", vec![RAW, ("x-metadata-k", "t\tb")], ""),
        ("path=x&signature_expiration=soon", vec![RAW], ""),
    ] {
        let answer = daemon.upload_with(query, &headers, body.to_owned()).await;
        assert_eq!(
            answer.error().0,
            400,
            "{query} {headers:?} {}",
            answer.text()
        );
    }
    let answer = daemon.upload("path=x&username=stranger", "").await;
    assert_eq!(answer.error().0, 401);
    let long = "k".repeat(247);
    let answer = daemon
        .upload_with("path=x", &[RAW, (&format!("x-metadata-{long}"), "v")], "")
        .await;
    assert_eq!(answer.error().0, 400);
}

#[tokio::test]
async fn a_gzipped_upload_is_decompressed_in_both_forms() {
    let daemon = daemon!();
    let packed = ("content-encoding", "gzip");
    let text = "hello ".repeat(100_000);
    let answer = daemon
        .upload_with("path=raw", &[RAW, packed], gzip(text.as_bytes()))
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(std::fs::read_to_string(daemon.path("raw")).unwrap(), text);
    let body = form(&[("file", Some("part"), &text)]);
    daemon
        .upload_with("", &[FORM, packed], gzip(body.as_bytes()))
        .await;
    assert_eq!(std::fs::read_to_string(daemon.path("part")).unwrap(), text);
}

#[tokio::test]
async fn metadata_is_kept_shown_and_replaced() {
    let daemon = daemon!();
    let headers = [RAW, ("X-Metadata-Author", "me"), ("x-metadata-k", "v v")];
    let answer = daemon.upload_with("path=m", &headers, "x").await;
    let expected = json!({"author": "me", "k": "v v"});
    if answer.json()[0].get("metadata").is_none() {
        eprintln!("skipped: no attributes on this file system");
        return;
    }
    assert_eq!(answer.json()[0]["metadata"], expected);
    let stat = daemon
        .call("/filesystem.Filesystem/Stat", json!({"path": "m"}))
        .await;
    assert_eq!(stat.json()["entry"]["metadata"], expected);
    let answer = daemon.upload("path=m", "y").await;
    assert!(answer.json()[0].get("metadata").is_none());
    let stat = daemon.client().stat("m").await.unwrap();
    assert!(stat.metadata.is_empty());
}

#[tokio::test]
async fn a_download_has_type_and_disposition() {
    let daemon = daemon!();
    std::fs::write(daemon.path("a b.json"), "{}").unwrap();
    let answer = daemon.download("path=a+b.json", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "{}"));
    assert_eq!(answer.header("content-length"), "2");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(
        answer.header("content-disposition"),
        "inline; filename=\"a b.json\""
    );
    assert_eq!(answer.header("vary"), "Accept-Encoding");
    assert_eq!(answer.header("accept-ranges"), "bytes");
    assert!(answer.header("last-modified").ends_with("GMT"));

    std::fs::write(daemon.path("empty"), "").unwrap();
    let answer = daemon.download("path=empty", &[]).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-length")),
        (200, "0")
    );
    // Kernel files have contents but report no size.
    let answer = daemon.download("path=/proc/version", &[]).await;
    assert!(answer.text().starts_with("Linux"), "{answer:?}");
}

#[tokio::test]
async fn each_download_failure_has_its_status() {
    let daemon = daemon!();
    for (query, status) in [
        ("path=none", 404),
        ("path=none/below", 404),
        ("path=", 400),
        ("path=/dev/zero", 400),
        ("path=~other", 400),
        ("path=x&username=stranger", 401),
    ] {
        assert_eq!(
            daemon.download(query, &[]).await.error().0,
            status,
            "{query}"
        );
    }
    assert_eq!(
        daemon
            .ask(Method::PUT, "/files?path=x")
            .send("")
            .await
            .error()
            .0,
        405
    );
}

#[tokio::test]
async fn a_range_of_a_file_can_be_requested() {
    let daemon = daemon!();
    std::fs::write(daemon.path("f"), "0123456789").unwrap();
    let answer = daemon.download("path=f", &[("range", "bytes=2-4")]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (206, "234"));
    assert_eq!(answer.header("content-range"), "bytes 2-4/10");
    assert_eq!(answer.header("content-length"), "3");
    let answer = daemon.download("path=f", &[("range", "bytes=-2")]).await;
    assert_eq!(answer.text(), "89");
    let answer = daemon.download("path=f", &[("range", "bytes=10-")]).await;
    assert_eq!(answer.status, 416);
    assert_eq!(answer.header("content-range"), "bytes */10");
    let answer = daemon
        .download("path=f", &[("range", "bytes=0-1,4-5")])
        .await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "0123456789"));
}

#[tokio::test]
async fn an_unchanged_file_is_not_sent_again() {
    let daemon = daemon!();
    std::fs::write(daemon.path("f"), "x").unwrap();
    let modified = daemon
        .download("path=f", &[])
        .await
        .header("last-modified")
        .to_owned();
    let since = ("if-modified-since", modified.as_str());
    let answer = daemon.download("path=f", &[since]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (304, ""));
    let long_ago = ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(daemon.download("path=f", &[long_ago]).await.status, 200);
    let failed = ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(daemon.download("path=f", &[failed]).await.status, 412);
}

#[tokio::test]
async fn a_download_is_compressed_on_request_only() {
    let daemon = daemon!();
    let text = "hello ".repeat(200_000);
    std::fs::write(daemon.path("f.txt"), &text).unwrap();
    let answer = daemon
        .download("path=f.txt", &[("accept-encoding", "br, gzip;q=0.5")])
        .await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    let mut unpacked = String::new();
    GzDecoder::new(&answer.body[..])
        .read_to_string(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, text);
    for accept in ["identity", "gzip;q=0", "br", "*"] {
        let answer = daemon
            .download("path=f.txt", &[("accept-encoding", accept)])
            .await;
        assert_eq!(answer.header("content-encoding"), "", "{accept}");
        assert_eq!(answer.body.len(), text.len());
    }
    let none = [("accept-encoding", "identity;q=0")];
    assert_eq!(daemon.download("path=f.txt", &none).await.error().0, 406);
    let ranged = [("accept-encoding", "gzip"), ("range", "bytes=0-3")];
    let answer = daemon.download("path=f.txt", &ranged).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (206, "hell"));
    let neither = [("accept-encoding", "gzip, *;q=0"), ("range", "bytes=0-3")];
    assert_eq!(daemon.download("path=f.txt", &neither).await.error().0, 406);
}

#[tokio::test]
async fn large_transfers_are_complete_and_leave_no_memory_behind() {
    let daemon = daemon!();
    let client = daemon.client();
    let contents: Vec<u8> = (0..64_u32 << 20)
        .map(|index| (index % 251).to_le_bytes()[0])
        .collect();
    let contents = Bytes::from(contents);
    let entry = client
        .upload_bytes(&Upload::to("big"), contents.clone())
        .await
        .unwrap();
    assert_eq!(entry.path, daemon.path("big"));
    let mut download = client.download("big").await.unwrap();
    assert_eq!(download.size(), Some(contents.len() as u64));
    let mut at = 0;
    while let Some(chunk) = download.chunk().await.unwrap() {
        assert_eq!(chunk, contents.slice(at..at + chunk.len()));
        at += chunk.len();
    }
    assert_eq!(at, contents.len());
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 << 10, "{peak} kB");
}

#[tokio::test]
async fn a_full_disk_is_507() {
    let daemon = daemon!();
    let small = daemon.home().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: cannot mount");
        return;
    }
    let answer = daemon.upload("path=small/f", vec![0; 1 << 20]).await;
    // The daemon may close the file after its answer.
    let mut unmount = std::process::Command::new("umount");
    let unmount = unmount.arg("--lazy").arg(&small).status();
    assert!(unmount.unwrap().success());
    let (status, message) = answer.error();
    assert_eq!(status, 507);
    assert_eq!(
        message,
        "attempted to write 1048576 bytes: not enough disk space available"
    );
}

#[tokio::test]
async fn an_aborted_upload_fails() {
    let daemon = daemon!();
    let mut connection = TcpStream::connect(daemon.address).await.unwrap();
    let head = "POST /files?path=partial HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\
        content-type: application/octet-stream\r\n\r\nonly this";
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains(" 200 "), "{rest}");
    assert_eq!(daemon.get("/health").await.status, 204);
}

#[tokio::test]
async fn an_upload_may_be_chunked_and_slow() {
    let daemon = daemon!();
    let mut connection = TcpStream::connect(daemon.address).await.unwrap();
    let head = "POST /files?path=chunked HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\
        connection: close\r\ncontent-type: multipart/form-data; boundary=B\r\n\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    let body = "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nslow\r\n--B--\r\n";
    for byte in body.bytes() {
        let chunk = [b"1\r\n", &[byte][..], b"\r\n"].concat();
        connection.write_all(&chunk).await.unwrap();
    }
    connection.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(
        std::fs::read_to_string(daemon.path("chunked")).unwrap(),
        "slow"
    );
}

#[tokio::test]
async fn files_are_composed_into_one_and_removed() {
    let daemon = daemon!();
    for (name, contents) in [("p1", "one "), ("p2", "two")] {
        std::fs::write(daemon.path(name), contents).unwrap();
    }
    let request = json!({"source_paths": ["p1", "p2"], "destination": "sub/whole"});
    let answer = daemon.post_json("/files/compose", request).await;
    let path = daemon.path("sub/whole");
    assert_eq!(
        answer.json(),
        json!({"name": "whole", "path": path, "type": "file"})
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one two");
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), UID);
    assert!(!daemon.home().join("p1").exists());

    std::fs::write(daemon.path("p1"), "1").unwrap();
    for (request, status) in [
        (json!({"source_paths": [], "destination": "d"}), 400),
        (json!({"source_paths": ["p1"], "destination": ""}), 400),
        (json!({"source_paths": ["p1"], "destination": "p1"}), 400),
        (
            json!({"source_paths": ["p1", "none"], "destination": "d"}),
            404,
        ),
        (
            json!({"source_paths": ["p1", "sub"], "destination": "d"}),
            400,
        ),
        (json!({"source_paths": ["p1"], "destination": "sub"}), 400),
        (
            json!({"source_paths": ["p1"], "destination": "d", "username": "x"}),
            401,
        ),
        (json!("nonsense"), 400),
    ] {
        let answer = daemon.post_json("/files/compose", request.clone()).await;
        assert_eq!(answer.error().0, status, "{request}");
    }
    assert!(daemon.home().join("p1").exists());
    let left: Vec<_> = std::fs::read_dir(daemon.home()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[tokio::test]
async fn composing_a_file_into_itself_under_another_name_fails() {
    let daemon = daemon!();
    let home = daemon.home();
    std::fs::write(home.join("x"), "kept").unwrap();
    std::fs::create_dir(home.join("d")).unwrap();
    std::os::unix::fs::symlink(&home, home.join("d/home")).unwrap();
    for (source, destination) in [
        ("x", "x"),
        ("d/../x", "x"),
        ("x", "d/../x"),
        ("d/home/x", "x"),
        // In a directory created by the request.
        ("x", "new/../x"),
    ] {
        let (source, destination) = (daemon.path(source), daemon.path(destination));
        let request = json!({"source_paths": [source], "destination": destination});
        let answer = daemon.post_json("/files/compose", request.clone()).await;
        assert_eq!(answer.error().0, 400, "{request}");
        let kept = std::fs::read_to_string(home.join("x"));
        assert_eq!(kept.unwrap(), "kept", "{request}");
    }
}

#[tokio::test]
async fn file_access_needs_the_token_or_a_signature() {
    let daemon = daemon!();
    std::fs::write(daemon.path("f"), "x").unwrap();
    daemon
        .post_json("/init", json!({"accessToken": "tok123"}))
        .await;
    let sign = |path: &str, operation, expiration| {
        let claim = shoal_protocol::signature::Claim {
            path,
            operation,
            username: "",
            expiration,
        };
        let signature = shoal_protocol::signature::sign(&claim, "tok123");
        form_urlencoded::byte_serialize(signature.as_bytes()).collect::<String>()
    };
    use shoal_protocol::signature::Operation::{Read as ReadIt, Write as WriteIt};
    let refused = |answer: Answer| {
        let (status, message) = answer.error();
        assert_eq!(status, 401);
        message
    };
    let missing = "missing signature query parameter";
    assert_eq!(refused(daemon.download("path=f", &[]).await), missing);
    assert_eq!(refused(daemon.upload("path=f", "").await), missing);
    let wrong = [("x-access-token", "wrong")];
    let text = "access token present in header but does not match";
    assert_eq!(refused(daemon.download("path=f", &wrong).await), text);
    let right = [("x-access-token", "tok123")];
    assert_eq!(daemon.download("path=f", &right).await.status, 200);

    let read = sign("f", ReadIt, None);
    let query = format!("path=f&signature={read}");
    assert_eq!(daemon.download(&query, &[]).await.text(), "x");
    for query in [
        format!("path=g&signature={read}"),
        format!("path=f&username={USER}&signature={read}"),
        "path=f&signature=v1_x".to_owned(),
    ] {
        assert_eq!(
            refused(daemon.download(&query, &[]).await),
            "invalid signature"
        );
    }
    let query = format!("path=f&signature={read}");
    assert_eq!(
        refused(daemon.upload(&query, "").await),
        "invalid signature"
    );
    let query = format!("path=f&signature={}", sign("f", WriteIt, None));
    assert_eq!(daemon.upload(&query, "y").await.status, 200);

    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let later = i64::try_from((now + Duration::from_secs(60)).as_secs()).unwrap();
    let query = |expiration: i64| {
        let signature = sign("f", ReadIt, Some(expiration));
        format!("path=f&signature={signature}&signature_expiration={expiration}")
    };
    assert_eq!(daemon.download(&query(later), &[]).await.status, 200);
    let answer = daemon.download(&query(1), &[]).await;
    assert_eq!(
        answer.json(),
        json!({"code": 401, "message": "signature is already expired"})
    );
    // Composing does not support signatures.
    let request = json!({"source_paths": ["f"], "destination": "g"});
    assert_eq!(
        daemon.post_json("/files/compose", request).await.error().0,
        401
    );
}
