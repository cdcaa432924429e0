//! A real registry on this machine for one test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use shoal_images::Digest;

use crate::making::{MANIFEST, TestImage};

/// The accounts of a registry with authentication: password `sesame`, in bcrypt.
const HTPASSWD: &str = "alice:$2y$04$abcdefghijklmnopqrstuuinwY/tkBVrn3xrxQI/TgnMHhkvl85RW\n";
const ALICE: &str = "Basic YWxpY2U6c2VzYW1l";

/// `docker-registry` on a loopback port.
pub(crate) struct Registry {
    process: Child,
    pub(crate) address: String,
    directory: tempfile::TempDir,
    authorization: &'static str,
}

impl Registry {
    /// Starts a public registry; `None`, with a message, if the program is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::launch("", "")
    }

    /// Starts a registry that only Alice with the password `sesame` may use.
    pub(crate) fn guarded() -> Option<Self> {
        let auth = "auth:\n  htpasswd:\n    realm: shoal\n    path: DIRECTORY/htpasswd\n";
        Self::launch(auth, ALICE)
    }

    fn launch(auth: &str, authorization: &'static str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_str().unwrap();
        let config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {at}\n\
             http:\n  addr: 127.0.0.1:0\n{}",
            auth.replace("DIRECTORY", at)
        );
        fs::write(directory.path().join("htpasswd"), HTPASSWD).unwrap();
        let file = directory.path().join("config.yml");
        fs::write(&file, config).unwrap();
        let spawned = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut process) = spawned else {
            eprintln!("skipped: docker-registry is not installed");
            return None;
        };
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(
                log.read_line(&mut line).unwrap() > 0,
                "the registry did not start"
            );
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split('"').next().unwrap().to_owned();
            }
        };
        // The pipe must be drained, or the registry would block.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Some(Self {
            process,
            address,
            directory,
            authorization,
        })
    }

    /// The name of an image in this registry.
    pub(crate) fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// Pushes an image under a tag or its digest.
    pub(crate) fn push(&self, repository: &str, tag: &str, image: &TestImage) {
        for (digest, bytes) in &image.blobs {
            self.push_blob(repository, digest, bytes);
        }
        self.push_manifest(repository, tag, MANIFEST, &image.manifest);
    }

    pub(crate) fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        bytes: &[u8],
    ) {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let (status, _) = self.request("PUT", &path, media_type, bytes);
        assert_eq!(status, 201);
    }

    fn push_blob(&self, repository: &str, digest: &Digest, bytes: &[u8]) {
        let begin = format!("/v2/{repository}/blobs/uploads/");
        let (status, headers) = self.request("POST", &begin, "", b"");
        assert_eq!(status, 202);
        let location = headers
            .lines()
            .find_map(|line| line.strip_prefix("Location: "))
            .unwrap();
        let path = location.split_once(&self.address).unwrap().1.trim();
        let path = format!("{path}&digest={digest}");
        let (status, _) = self.request("PUT", &path, "application/octet-stream", bytes);
        assert_eq!(status, 201);
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, authorization) = (&self.address, self.authorization);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: {authorization}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    /// The path where the registry stores a blob.
    pub(crate) fn stored(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let blobs = self
            .directory
            .path()
            .join("docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(&hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
