//! The shell lines that a start prints: how clients reach the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::api_key::FirstKey;
use crate::config::Config;

/// Prints the lines. `authority` is the self-signed authority that clients must trust.
pub(crate) fn print(config: &Config, key: &FirstKey, authority: Option<&Path>) {
    print!("{}", lines(config, key, authority, has_sudo()));
}

fn lines(config: &Config, key: &FirstKey, authority: Option<&Path>, sudo: bool) -> String {
    let key = match key {
        FirstKey::Made(key) => key.clone(),
        FirstKey::InFile(file) => {
            let sudo = if sudo { "sudo " } else { "" };
            format!("\"$({sudo}cat {})\"", quoted(file))
        }
        FirstKey::Gone => "<your key>".to_owned(),
    };
    let mut lines = format!("export E2B_API_KEY={key}\n");
    let mut ui = None;
    let mut export = |name: &str, value: String| lines += &format!("export {name}={value}\n");
    if let Some(domain) = public_domain(config) {
        export("E2B_DOMAIN", domain);
    } else {
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let address = format!("{scheme}://{}", reachable(config.listen));
        export("E2B_API_URL", address.clone());
        export("E2B_SANDBOX_URL", address.clone());
        ui = Some(format!("# Web UI: {address}/ui/\n"));
    }
    if let Some(authority) = authority {
        export("SSL_CERT_FILE", quoted(authority));
        export("NODE_EXTRA_CA_CERTS", quoted(authority));
    }
    lines + &ui.unwrap_or_default()
}

/// The domain for clients, with the port unless it is 443. None without TLS, because clients use
/// `https` for domains.
pub(crate) fn public_domain(config: &Config) -> Option<String> {
    config.tls.as_ref()?;
    let (domain, port) = (config.domain.as_ref()?, config.listen.port());
    Some(if port == 443 {
        domain.clone()
    } else {
        format!("{domain}:{port}")
    })
}

/// An address of the listener for clients on this machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listen.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, listen.port()).into(),
        _ => listen,
    }
}

/// Whether `sudo` exists; containers often run as root without it.
fn has_sudo() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("sudo").is_file())
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(settings: &[&str]) -> Config {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        Config::read(&Sources::default().with_settings(&settings)).unwrap()
    }

    #[test]
    fn the_first_start_prints_the_key_and_later_ones_name_its_file() {
        let config = config(&["listen=0.0.0.0:3000"]);
        let rest = "export E2B_API_URL=http://127.0.0.1:3000\n\
                    export E2B_SANDBOX_URL=http://127.0.0.1:3000\n\
                    # Web UI: http://127.0.0.1:3000/ui/\n";
        let made = lines(&config, &FirstKey::Made("e2b_x".into()), None, true);
        assert_eq!(made, format!("export E2B_API_KEY=e2b_x\n{rest}"));
        let kept = FirstKey::InFile("/srv/a b/api-key".into());
        assert_eq!(
            lines(&config, &kept, None, true),
            format!("export E2B_API_KEY=\"$(sudo cat '/srv/a b/api-key')\"\n{rest}")
        );
        assert!(lines(&config, &kept, None, false).contains("\"$(cat "));
        assert!(lines(&config, &FirstKey::Gone, None, true).contains("<your key>"));
    }

    #[test]
    fn clients_with_a_domain_learn_the_authority() {
        let config = config(&["domain=e2b.localhost", "tls=self-signed"]);
        let told = lines(
            &config,
            &FirstKey::Gone,
            Some(Path::new("/run/ca.pem")),
            true,
        );
        assert!(told.contains("export E2B_DOMAIN=e2b.localhost:3000\n"));
        assert!(told.contains("export SSL_CERT_FILE=/run/ca.pem\n"));
        assert!(!told.contains("E2B_API_URL"));
    }
}
