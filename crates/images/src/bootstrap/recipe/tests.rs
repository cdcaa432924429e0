use super::*;

const GOOD: &str = r#"
    suite = "bookworm"
    packages = ["python3", "g++", "libc6-dev"]
    exclude = ["/usr/share/doc/*"]
    remove = ["/usr/lib/python3*/EXTERNALLY-MANAGED"]
    workdir = "/home/user"
    [env]
    LANG = "C.UTF-8"
    [user]
    name = "user"
    uid = 1000
    home = "/home/user"
    shell = "/bin/bash"
    sudo = true
    [files."/home/user/.profile"]
    content = "x"
    mode = "0600"
    owner = "user"
"#;

#[test]
fn a_recipe_is_read_from_toml() {
    let recipe = Recipe::from_toml(GOOD).unwrap();
    assert_eq!(recipe.packages.len(), 3);
    assert!(recipe.user.as_ref().unwrap().sudo);
    let file = &recipe.files[&"/home/user/.profile".parse().unwrap()];
    assert_eq!((file.mode.bits(), file.owner), (0o600, Owner::User));
    let json = serde_json::to_string(&recipe).unwrap();
    assert_eq!(serde_json::from_str::<Recipe>(&json).unwrap(), recipe);
}

#[test]
fn an_unknown_field_of_a_recipe_is_an_error() {
    for (from, to) in [
        ("suite = ", "release = "),
        ("uid = 1000", "uid = 0"),
        ("uid = 1000", "uid = 1000\nshadow = true"),
        ("\"bookworm\"", "\"--help\""),
        ("\"bookworm\"", "\"../x\""),
        ("\"python3\"", "\"python3-\""),
        ("\"python3\"", "\"?essential\""),
        ("\"python3\"", "\"--option=x\""),
        ("\"python3\"", "\"a b\""),
        ("name = \"user\"", "name = \"user:x\""),
        ("\"0600\"", "\"rw\""),
        ("\"0600\"", "\"9999\""),
        ("\"/home/user/.profile\"", "\"/home/../../x\""),
        ("\"/home/user/.profile\"", "\"relative\""),
        ("\"/home/user/.profile\"", "\"/\""),
        ("\"/bin/bash\"", "\"/bin/bash\\nroot::0\""),
        ("LANG", "\"A=B\""),
    ] {
        assert!(GOOD.contains(from));
        assert!(
            Recipe::from_toml(&GOOD.replacen(from, to, 1)).is_err(),
            "{to}"
        );
    }
}

#[test]
fn a_recipe_has_bounds() {
    let mut recipe = Recipe::minimal("bookworm".parse().unwrap());
    assert!(recipe.check().is_ok());
    let file = FileSpec {
        content: "x".repeat(CONTENT_MAX + 1),
        mode: Mode::default(),
        owner: Owner::Root,
    };
    recipe.files.insert("/x".parse().unwrap(), file);
    assert!(recipe.check().is_err());
    recipe.files.clear();
    for n in 0..=ITEMS_MAX {
        recipe
            .packages
            .insert(format!("package{n}").parse().unwrap());
    }
    assert!(recipe.check().is_err());
}
