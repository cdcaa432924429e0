//! AWS keys, which its registries do not accept: a call of AWS's API exchanges them for a password.
//!
//! The call is signed with AWS's Signature Version 4, in forty lines of our own. The `aws-sigv4`
//! crate signs too, but brings far more code than that.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use shoal_core::clock::Timestamp;
use shoal_core::image::RegistryAuth;

use super::http;
use crate::fault::Fault;

/// The longest response: a password has about two KiB.
const ANSWER_MAX: u64 = 64 << 10;

/// How much of AWS's error message is quoted, in characters.
const SAID_MAX: usize = 300;

const TARGET: &str = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";
const JSON: &str = "application/x-amz-json-1.1";

/// A request to be signed; its lines are those of AWS's documentation, in the same order.
struct Signed<'a> {
    method: &'a str,
    query: &'a str,
    /// Sorted by name, with lower-case names.
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

/// The time and scope of a signature.
struct Scope<'a> {
    /// `20150830T123600Z`.
    time: &'a str,
    region: &'a str,
    service: &'a str,
}

fn hash(of: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(of))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC accepts keys of any length.
    let mac = Hmac::<Sha256>::new_from_slice(key);
    let mut mac = mac.unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The value of `Authorization`.
fn sign(request: &Signed<'_>, scope: &Scope<'_>, keys: &RegistryAuth) -> String {
    let Scope {
        time,
        region,
        service,
    } = scope;
    let day = time.get(..8).unwrap_or_default();
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let canonical = format!(
        "{}\n/\n{}\n{lines}\n{names}\n{}",
        request.method,
        request.query,
        hash(request.body)
    );
    let within = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{within}\n{}", hash(canonical));
    let secret = format!("AWS4{}", keys.password).into_bytes();
    let key = [day, region, service, "aws4_request"]
        .into_iter()
        .fold(secret, |key, part| mac(&key, part));
    let signature = hex::encode(mac(&key, &text));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{within}, SignedHeaders={names}, Signature={signature}",
        keys.username
    )
}

/// `20150830T123600Z`: an RFC 3339 time without separators and fractions.
fn compact(now: Timestamp) -> String {
    let text = now.to_string();
    let seconds = text.get(..19).unwrap_or_default();
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Timestamp::from_unix_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// The domain of a region's registries and their API, without the service's name.
fn domain_of(region: &str) -> Option<String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_name = (1..=32).contains(&region.len()) && region.bytes().all(good);
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    is_name.then(|| format!("{region}.amazonaws.com{china}"))
}

/// The API endpoint of a region.
fn endpoint_of(region: &str) -> Option<String> {
    Some(format!("https://api.ecr.{}", domain_of(region)?))
}

/// Whether a host is a registry of AWS in this region.
pub(super) fn is_registry(host: &str, region: &str) -> bool {
    let account = domain_of(region).and_then(|domain| {
        let account = host.strip_suffix(domain.as_str())?;
        account.strip_suffix(".dkr.ecr.")
    });
    account
        .is_some_and(|account| !account.is_empty() && account.bytes().all(|b| b.is_ascii_digit()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    authorization_data: Vec<Given>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    authorization_token: String,
}

/// The account in a response: `AWS:<password>` in base64.
fn account(answer: &[u8]) -> Option<RegistryAuth> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let token = &answer.authorization_data.first()?.authorization_token;
    let text = String::from_utf8(STANDARD.decode(token).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(RegistryAuth {
        username: username.to_owned(),
        password: password.to_owned(),
        aws_region: None,
    })
}

/// Whether AWS throttled the call, which it reports with an unspecific status.
fn is_throttled(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refusal {
        #[serde(rename = "__type")]
        kind: String,
    }
    let refusal: Option<Refusal> = serde_json::from_slice(answer).ok();
    refusal.is_some_and(|refusal| refusal.kind.ends_with("ThrottlingException"))
}

/// Exchanges keys for an account of the registries of `region`. Uses `endpoint` instead of AWS, if
/// set.
///
/// # Errors When AWS cannot be reached, or rejects the keys; then the text is AWS's.
pub(super) async fn exchange(
    client: &Client,
    keys: &RegistryAuth,
    region: &str,
    endpoint: Option<&str>,
) -> Result<RegistryAuth, Fault> {
    let unknown = || Fault::refused(format!("{region:?} is not an AWS region"));
    let endpoint = match endpoint {
        Some(endpoint) => endpoint.to_owned(),
        None => endpoint_of(region).ok_or_else(unknown)?,
    };
    let host = endpoint.split_once("://").map_or("", |(_, host)| host);
    let time = compact(now());
    let body = b"{}";
    let request = Signed {
        method: "POST",
        query: "",
        headers: &[
            ("content-type", JSON),
            ("host", host),
            ("x-amz-date", &time),
            ("x-amz-target", TARGET),
        ],
        body,
    };
    let scope = Scope {
        time: &time,
        region,
        service: "ecr",
    };
    let unfit = |_| Fault::refused("the id of the AWS key is invalid in an HTTP header");
    let mut signed = HeaderValue::from_str(&sign(&request, &scope, keys)).map_err(unfit)?;
    signed.set_sensitive(true);
    let asked = client
        .post(format!("{endpoint}/"))
        .header(CONTENT_TYPE, JSON)
        .header("x-amz-date", &time)
        .header("x-amz-target", TARGET)
        .header(AUTHORIZATION, signed)
        .body(&body[..])
        .send();
    let answer = asked
        .await
        .map_err(|error| http::unreachable(host, error))?;
    let status = answer.status();
    let said = http::read(answer, ANSWER_MAX, host).await?;
    if http::may_pass(status) || is_throttled(&said) {
        return Err(Fault::Unreachable {
            registry: host.to_owned(),
            detail: format!("it answered {status}"),
        });
    }
    if !status.is_success() {
        let said: String = String::from_utf8_lossy(&said)
            .chars()
            .take(SAID_MAX)
            .collect();
        return Err(Fault::refused(format!(
            "AWS gives no password for these keys ({status}): {said}"
        )));
    }
    account(&said).ok_or_else(|| Fault::refused("AWS did not answer with a password"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_as_in_the_documentation_of_aws() {
        let keys = RegistryAuth {
            username: "AKIDEXAMPLE".to_owned(),
            password: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            aws_region: None,
        };
        let request = Signed {
            method: "GET",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                (
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                ),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"",
        };
        let scope = Scope {
            time: "20150830T123600Z",
            region: "us-east-1",
            service: "iam",
        };
        assert_eq!(
            sign(&request, &scope, &keys),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn regions_are_names_and_nothing_else() {
        let asked = endpoint_of("eu-central-1").unwrap();
        assert_eq!(asked, "https://api.ecr.eu-central-1.amazonaws.com");
        let china = endpoint_of("cn-north-1").unwrap();
        assert_eq!(china, "https://api.ecr.cn-north-1.amazonaws.com.cn");
        for bad in ["", "evil.test/", "a.b", "EU", "x@y", "a:1"] {
            assert_eq!(endpoint_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_registries_of_aws_receive_its_credentials() {
        let own = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
        assert!(is_registry(own, "eu-central-1"));
        assert!(!is_registry(own, "us-east-1"));
        for other in [
            "registry.test",
            "dkr.ecr.eu-central-1.amazonaws.com",
            "x.test.dkr.ecr.eu-central-1.amazonaws.com",
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com.test",
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com:8443",
        ] {
            assert!(!is_registry(other, "eu-central-1"), "{other}");
        }
        assert!(is_throttled(
            br#"{"__type": "com.amazon#ThrottlingException"}"#
        ));
        assert!(!is_throttled(
            br#"{"__type": "UnrecognizedClientException"}"#
        ));
    }

    #[test]
    fn times_are_written_without_signs() {
        let time = Timestamp::parse_rfc3339("2015-08-30T12:36:00.5Z").unwrap();
        assert_eq!(compact(time), "20150830T123600Z");
    }

    #[test]
    fn the_account_is_in_the_answer() {
        let answer = br#"{"authorizationData": [{"authorizationToken": "QVdTOnNlc2FtZQ==", "expiresAt": 1.0}]}"#;
        let account = account(answer).unwrap();
        assert_eq!(
            (account.username.as_str(), account.password.as_str()),
            ("AWS", "sesame")
        );
        for bad in [
            &b"{}"[..],
            b"",
            br#"{"authorizationData": []}"#,
            br#"{"authorizationData": [{"authorizationToken": "!"}]}"#,
        ] {
            assert!(super::account(bad).is_none());
        }
    }
}
