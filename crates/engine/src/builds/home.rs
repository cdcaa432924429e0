//! The home directory of a user, from the accounts of its image.

use shoal_core::build::{BUILD_USER, BUILD_WORKDIR};

/// The file with the accounts of an image.
pub(super) const ACCOUNTS: &str = "/etc/passwd";

/// How many bytes of that file are read, as in the daemon.
pub(super) const ACCOUNTS_MAX: usize = 8 << 20;

/// The home directory of a user according to [`ACCOUNTS`]: the default directory of commands. The
/// first line with the name counts.
pub(super) fn home_of(accounts: &[u8], user: &str) -> String {
    let lines = accounts.split(|byte| *byte == b'\n');
    let mut lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
    match lines.find_map(|line| home_in(line, user)) {
        Some(home) if home.starts_with('/') => home.to_owned(),
        Some(_) => "/".to_owned(),
        None => usual_home(user).to_owned(),
    }
}

/// The home directory in a line `name:password:uid:gid:comment:home:shell`, if it is the user's.
fn home_in<'a>(line: &'a str, user: &str) -> Option<&'a str> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| *name == user);
    let numbers = [fields.nth(1)?, fields.next()?];
    let home = fields.nth(1)?;
    // The daemon also ignores lines without valid numbers.
    let good = numbers.iter().all(|number| number.parse::<u32>().is_ok());
    name.filter(|_| good).map(|_| home)
}

/// The home directory of an account that is missing from the file: known for the accounts that every
/// image has or gets, and `/` for all others.
pub(super) fn usual_home(user: &str) -> &'static str {
    match user {
        "root" => "/root",
        BUILD_USER => BUILD_WORKDIR,
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_user_comes_from_the_image() {
        let accounts = b"root:x:0:0:root:/root:/bin/sh\n\
            short:x:70\n\
            nginx:x:101:101:nginx user:/var/cache/nginx:/sbin/nologin\n\
            nginx:x:102:102::/elsewhere:/bin/sh\n\
            \xff:x:7:7::/:/bin/sh\n\
            nan:x:many:0::/nan:/bin/sh\n\
            nohome:x:8:8:::\n\
            user:x:1000:1000::/srv/user:/bin/sh";
        for (user, home) in [
            ("root", "/root"),
            ("nginx", "/var/cache/nginx"),
            ("nohome", "/"),
            ("user", "/srv/user"),
            ("short", "/"),
            ("nan", "/"),
            ("101", "/"),
        ] {
            assert_eq!(home_of(accounts, user), home, "{user}");
        }
        assert_eq!(home_of(b"", "user"), "/home/user");
        assert_eq!(home_of(b"", "root"), "/root");
    }
}
