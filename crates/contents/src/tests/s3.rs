//! The contract against a server of S3: the one of the conformance suites on loopback, or the one that `AWS_ENDPOINT_URL` and
//! the other variables name, with an empty bucket `contract`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use object_store::aws::AmazonS3Builder;

use super::*;

/// The program of the server.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/s3.py");

/// A server of S3.
struct Server {
    builder: AmazonS3Builder,
    program: Option<Child>,
}

impl Server {
    fn start() -> Self {
        choose_tls();
        if std::env::var_os("AWS_ENDPOINT_URL").is_some() {
            return Self {
                builder: AmazonS3Builder::from_env(),
                program: None,
            };
        }
        let program = Command::new("python3")
            .args([PROGRAM, "contract"])
            .stdout(Stdio::piped())
            .spawn();
        let mut program = program.expect("the test server of S3 needs python3");
        let mut endpoint = String::new();
        let said = program.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut endpoint).unwrap();
        let builder = AmazonS3Builder::new()
            .with_endpoint(endpoint.trim())
            .with_allow_http(true)
            .with_access_key_id("key")
            .with_secret_access_key("secret");
        Self {
            builder,
            program: Some(program),
        }
    }

    fn contents(&self, bucket: &str, installation: &str) -> ObjectContents {
        let bucket: Bucket = bucket.parse().unwrap();
        let objects = bucket.open_with(self.builder.clone()).unwrap();
        ObjectContents::owned(objects, &bucket, installation)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

#[tokio::test]
async fn s3_keeps_the_contract_and_its_owner() {
    let server = Server::start();
    let place = "s3://contract/some/where";
    let contents = server.contents(place, "one");
    let spoil = contents.objects.clone();
    keeps_its_contract(&contents, &*spoil).await;
    let another = server.contents(place, "two");
    assert!(matches!(another.claim().await, Err(StoreError::Failed(_))));
    let large = Bytes::from(vec![7; 64 << 20]);
    contents.put(digest(&large), large.clone()).await.unwrap();
    assert_eq!(contents.get(digest(&large)).await.unwrap(), Some(large));
    let missing = server.contents("s3://no-such-bucket", "one");
    assert!(matches!(missing.claim().await, Err(StoreError::Failed(_))));
}
