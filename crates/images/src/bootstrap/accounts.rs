//! The files with a system's users and groups.

use super::recipe::UserSpec;

/// The contents of the files below `/etc`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    pub(super) passwd: String,
    pub(super) group: String,
    pub(super) shadow: String,
    pub(super) gshadow: String,
}

/// Why a user was not added.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Taken {
    #[error("user {0} already exists")]
    Name(String),
    #[error("a user with id {0} already exists")]
    Number(u32),
    #[error("group {0} already exists with another id")]
    Group(String),
}

impl Accounts {
    /// Adds a user with its own group and a locked password.
    pub(super) fn add(&mut self, user: &UserSpec) -> Result<(), Taken> {
        let UserSpec {
            name,
            uid,
            home,
            shell,
            ..
        } = user;
        if find(&self.passwd, 0, name.as_str()).is_some() {
            return Err(Taken::Name(name.to_string()));
        }
        if find(&self.passwd, 2, &uid.to_string()).is_some() {
            return Err(Taken::Number(*uid));
        }
        match find(&self.group, 0, name.as_str()) {
            Some(line) if line.split(':').nth(2) != Some(&uid.to_string()) => {
                return Err(Taken::Group(name.to_string()));
            }
            Some(_) => (),
            None => {
                append(&mut self.group, &format!("{name}:x:{uid}:"));
                append(&mut self.gshadow, &format!("{name}:!::"));
            }
        }
        append(
            &mut self.passwd,
            &format!("{name}:x:{uid}:{uid}::{home}:{shell}"),
        );
        append(&mut self.shadow, &format!("{name}:*:::::::"));
        Ok(())
    }
}

/// The line with this value in a field.
fn find<'a>(text: &'a str, field: usize, value: &str) -> Option<&'a str> {
    text.lines()
        .find(|line| line.split(':').nth(field) == Some(value))
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, uid: u32) -> UserSpec {
        UserSpec {
            name: name.parse().unwrap(),
            uid,
            home: "/home/user".parse().unwrap(),
            shell: "/bin/bash".parse().unwrap(),
            sudo: true,
        }
    }

    fn system() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\n".into(),
            group: "root:x:0:\nusers:x:100:".into(),
            shadow: "root:*:19000:0:99999:7:::\n".into(),
            gshadow: String::new(),
        }
    }

    #[test]
    fn a_user_is_added_to_all_files() {
        let mut accounts = system();
        accounts.add(&user("user", 1000)).unwrap();
        assert!(
            accounts
                .passwd
                .ends_with("\nuser:x:1000:1000::/home/user:/bin/bash\n")
        );
        assert!(accounts.group.ends_with("users:x:100:\nuser:x:1000:\n"));
        assert!(accounts.shadow.ends_with("\nuser:*:::::::\n"));
        assert_eq!(accounts.gshadow, "user:!::\n");
    }

    #[test]
    fn an_existing_user_is_unchanged() {
        let mut accounts = system();
        assert_eq!(
            accounts.add(&user("root", 5)),
            Err(Taken::Name("root".into()))
        );
        assert_eq!(
            accounts.add(&user("users", 5)),
            Err(Taken::Group("users".into()))
        );
        accounts.add(&user("one", 1000)).unwrap();
        assert_eq!(accounts.add(&user("two", 1000)), Err(Taken::Number(1000)));
    }
}
