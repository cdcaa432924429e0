//! Start commands that a template inherits.

use super::*;

/// As whom, where and with which variable of the steps a line ran.
type Ran = (String, String, Option<String>);

fn step(action: Action) -> Step {
    Step {
        action,
        line: None,
        force: false,
    }
}

/// Steps that end as this user, in this directory, with this variable.
fn steps(user: &str, workdir: &str, value: &str) -> Vec<Step> {
    let user = Action::User {
        name: user.to_owned(),
        sudo: false,
    };
    let env = Action::Env(vec![("SAID".to_owned(), value.to_owned())]);
    let workdir = Action::Workdir(workdir.to_owned());
    [user, workdir, env].map(step).into()
}

fn expected(user: &str, workdir: &str, value: &str) -> Option<Ran> {
    Some((user.to_owned(), workdir.to_owned(), Some(value.to_owned())))
}

impl Fixture {
    /// Builds a template of these steps on another.
    async fn build_on(
        &self,
        base: &str,
        name: &str,
        steps: Vec<Step>,
        commands: [Option<&str>; 2],
    ) {
        let [start, ready] = commands.map(|command| command.map(str::to_owned));
        let base = Base::Template(base.parse().unwrap());
        let plan = Plan {
            stages: vec![Stage { base, steps }],
            start,
            ready,
            ..plan(&[])
        };
        let build = self.announce(name).await;
        self.begin(&build, plan).await.unwrap();
        let build = self.built(&build).await;
        assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    }

    /// How a line ran the last time, since this was asked last.
    fn how(&self, line: &str) -> Option<Ran> {
        let commands = self.guest.commands.lock();
        let mut all = commands.iter().rev();
        let found = all.find(|(_, command)| command.args.last().is_some_and(|arg| arg == line));
        let (target, command) = found?;
        let said = command.env.get("SAID").cloned();
        Some((target.user.clone()?, command.cwd.clone()?, said))
    }

    /// Starts a sandbox of a template from its files, as where its memory is of another runtime.
    async fn boot(&self, name: &str) {
        self.guest.commands.lock().clear();
        self.driver.refuse(Refusals {
            memory: true,
            ..Refusals::default()
        });
        let new = SandboxRequest::of(name.parse::<TemplateKey>().unwrap());
        self.engine.create(&self.me, new, None).await.unwrap();
        self.driver.refuse(Refusals::default());
    }
}

#[tokio::test]
async fn an_inherited_start_command_runs_as_in_the_template_that_it_comes_from() {
    let fixture = fixture().await;
    let base = || steps("worker", "/srv/base", "base");
    let derived = || steps("root", "/srv/derived", "derived");
    let commands = [Some("serve"), Some("asked")];
    fixture.build_on("base", "lower", base(), commands).await;
    let as_base = expected("worker", "/srv/base", "base");
    assert_eq!(fixture.how("serve"), as_base);
    for (below, name) in [("lower", "upper"), ("upper", "top")] {
        fixture.guest.commands.lock().clear();
        fixture.build_on(below, name, derived(), [None, None]).await;
        assert_eq!(fixture.how("serve"), as_base, "{name}");
        assert_eq!(fixture.how("asked"), as_base, "{name}");
        fixture.boot(name).await;
        assert_eq!(fixture.how("serve"), as_base, "{name} boots");
        assert_eq!(fixture.how("asked"), as_base, "{name} boots");
    }
    // A template's own start command runs when its steps end.
    let own = expected("root", "/srv/derived", "derived");
    let ready = [None, Some("is it")];
    fixture.build_on("lower", "asks", derived(), ready).await;
    assert_eq!(
        (fixture.how("serve"), fixture.how("is it")),
        (as_base, own.clone())
    );
    let both = [Some("work"), None];
    fixture.build_on("lower", "works", derived(), both).await;
    assert_eq!(fixture.how("work"), own);
    fixture.boot("works").await;
    assert_eq!(fixture.how("work"), own);
    assert_eq!(fixture.how("serve"), None);
}
