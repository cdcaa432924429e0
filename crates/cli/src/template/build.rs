//! `shoal template build`: building a template from a Dockerfile.
//!
//! ```text
//!   Dockerfile ─▶ plan ─▶ files of the context, hashed ─▶ uploads of missing files ─▶ start
//!                                                             log and failure by line ◀─ follow
//! ```
//!
//! It uses E2B's wire; `shoal_protocol::build` documents the extensions for Dockerfiles.

mod archive;
mod bases;
mod context;
mod follow;
mod ignore;
mod staged;
mod text;
mod upload;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use http::Method;
use serde_json::to_value;
use shoal_core::template::DEFAULT_TAG;
use shoal_dockerfile::{Options, TemplateBase};
use shoal_protocol::build::{BuildStart, NewBuild, Registry, RequestedBuild};
use shoal_protocol::native::BuildTemplate;

use self::context::Context;
use self::follow::Build;
use self::staged::Staged;
use self::text::Text;
use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::{image, output, parse};

#[derive(Debug, Args)]
#[command(after_help = "\
A Dockerfile is built as Docker builds it, in a sandbox of the server. What differs:
  - a sandbox runs commands as `user` in /home/user unless USER and WORKDIR say otherwise
  - FROM NAME means the template NAME if there is one, else the image; docker.io/library/NAME is
    always the image
  - ENTRYPOINT and CMD become the start command, which runs in every sandbox from its first
    moment; --start-cmd wins, and --start-cmd '' means none
  - RUN is run by bash; SHELL names another
  - EXPOSE, LABEL, VOLUME, STOPSIGNAL, HEALTHCHECK and cache mounts are skipped with a warning
  - ONBUILD, secret mounts, ADD of URLs and of archives, and other processors are refused
Files that .dockerignore names (or <Dockerfile>.dockerignore) are left out.

Examples:
  shoal template build
  shoal template build -f docker/Dockerfile --context . -t app:v2 --cpu 2 --memory 2G
  shoal template build -t web --start-cmd 'python3 -m http.server' --ready-cmd 'curl -f localhost:8000'
  shoal template build code-interpreter-v1         (a template of the installation)
  shoal template build --watch TEMPLATE/BUILD      (shows a running build)
  shoal sandbox create --template app:v2")]
pub(super) struct BuildArgs {
    /// Build a template that the server defines, such as code-interpreter-v1.
    #[arg(value_name = "TEMPLATE", conflicts_with_all = [
        "file", "tag", "context", "build_arg", "target", "cpu", "memory", "start_cmd", "ready_cmd",
        "username", "watch", "cancel",
    ])]
    template: Option<String>,
    /// The Dockerfile; - is standard input [default: Dockerfile].
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The template's name, and a tag of this build; repeatable for several tags
    /// [default: the name of the context's directory].
    #[arg(long, short, value_name = "NAME[:TAG]")]
    tag: Vec<String>,
    /// The directory that COPY copies from [default: the directory of the Dockerfile].
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
    /// A value for an ARG; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::pair)]
    build_arg: Vec<(String, String)>,
    /// The stage to build, by its name or its number from 0 [default: the last].
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// Processors of its sandboxes: 1 or an even number [default: the server's].
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<u32>,
    /// Memory of its sandboxes: 512M, 2G [default: the server's].
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    memory: Option<u32>,
    /// The start command of every sandbox [default: from ENTRYPOINT and CMD].
    #[arg(long, value_name = "COMMAND")]
    start_cmd: Option<String>,
    /// A command that succeeds once the start command is ready [default: wait 20 seconds].
    #[arg(long, value_name = "COMMAND")]
    ready_cmd: Option<String>,
    /// Ignore the build cache.
    #[arg(long)]
    no_cache: bool,
    /// The account at the registry of the base image.
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    username: Option<String>,
    /// Read its password or token from standard input.
    #[arg(long, requires = "username")]
    password_stdin: bool,
    /// Show no log unless the build fails.
    #[arg(long, short)]
    quiet: bool,
    /// Follow the log of an earlier build to its end.
    #[arg(long, value_name = "TEMPLATE/BUILD", conflicts_with_all = ["file", "tag", "context", "cancel"])]
    watch: Option<String>,
    /// Cancel an earlier build.
    #[arg(long, value_name = "TEMPLATE/BUILD", conflicts_with_all = ["file", "tag", "context"])]
    cancel: Option<String>,
}

pub(super) async fn run(server: &Connection, args: BuildArgs, json: bool) -> Result<u8, Failure> {
    if let Some(asked) = &args.cancel {
        cancel(server, asked).await?;
        return Ok(0);
    }
    if let Some(asked) = &args.watch {
        let (template, build) = split(asked)?;
        let build = Build::new(template, build, None, args.quiet);
        build.follow(server).await?;
        output::line(template)?;
        return Ok(0);
    }
    let made = match &args.template {
        Some(name) => build_stock(server, name, &args).await?,
        None => build(server, args).await?,
    };
    if json {
        output::json(&made)?;
    } else {
        references(&made)
            .iter()
            .try_for_each(|name| output::line(name))?;
    }
    Ok(0)
}

/// The names for `create --template`: the template's name with each tag.
fn references(made: &RequestedBuild) -> Vec<String> {
    let name = made.names.iter().chain(&made.aliases).next_back();
    let name = name.unwrap_or(&made.template_id);
    let with = |tag: &String| match tag.as_str() {
        DEFAULT_TAG => name.clone(),
        tag => format!("{name}:{tag}"),
    };
    match made.tags.as_slice() {
        [] => vec![name.clone()],
        tags => tags.iter().map(with).collect(),
    }
}

/// Has the server build one of its own templates, and follows that build.
async fn build_stock(
    server: &Connection,
    name: &str,
    args: &BuildArgs,
) -> Result<RequestedBuild, Failure> {
    if name.contains(['.', '/']) {
        return Err(Failure::usage(format!("{name:?} is no template's name"))
            .with_hint("A directory is named by --context, a Dockerfile by -f."));
    }
    let path = format!("/templates/{}/build", encode(name));
    let asked = BuildTemplate {
        force: args.no_cache,
    };
    let made: RequestedBuild = server.native(Method::POST, &path, Some(&asked)).await?;
    let build = Build::new(&made.template_id, &made.build_id, None, args.quiet);
    build.follow(server).await?;
    Ok(made)
}

/// Builds the template and returns its names.
async fn build(server: &Connection, args: BuildArgs) -> Result<RequestedBuild, Failure> {
    let stdin = args.file.as_deref() == Some(Path::new("-"));
    if stdin && args.password_stdin {
        return Err(Failure::usage(
            "standard input cannot be the Dockerfile and the password",
        ));
    }
    let path = args.file.clone().unwrap_or_else(|| "Dockerfile".into());
    let text = Text::read(&path)?;
    let beside = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty() && !stdin);
    let directory = args.context.clone();
    let directory = directory.unwrap_or_else(|| beside.unwrap_or(Path::new(".")).to_owned());
    let new = new_build(&args, &directory)?;
    let file = (!stdin).then_some(path.as_path());
    let mut staged = stage(&text, &args, &directory, file, Vec::new()).await?;
    let templates = bases::templates(server, staged.perhaps_templates()).await?;
    if !templates.is_empty() {
        staged = stage(&text, &args, &directory, file, templates).await?;
    }
    staged.warn(&text);
    let password = args.password_stdin.then(image::password).transpose()?;
    let registry = args.username.clone().zip(password);
    let registry = registry.map(|(username, password)| Registry::Registry { username, password });

    let body = to_value(&new).map_err(|error| Failure::other(error.to_string()))?;
    let made: RequestedBuild = server
        .call(Method::POST, "/v3/templates", Some(body))
        .await?;
    staged.upload(server, &made.template_id, &text).await?;
    let mut start = staged.start(registry);
    start.force = args.no_cache;
    start.start_cmd = args
        .start_cmd
        .or(start.start_cmd)
        .filter(|command| !command.is_empty());
    start.ready_cmd = args.ready_cmd;
    start_build(server, &made, &start).await?;
    let places = Some((staged.lines(), text));
    let build = Build::new(&made.template_id, &made.build_id, places, args.quiet);
    build.follow(server).await?;
    Ok(made)
}

/// Reads the Dockerfile and its files.
async fn stage(
    text: &Text,
    args: &BuildArgs,
    directory: &Path,
    file: Option<&Path>,
    templates: Vec<TemplateBase>,
) -> Result<Staged, Failure> {
    let options = Options {
        build_args: args.build_arg.clone(),
        target: args.target.clone(),
        arch: shoal_dockerfile::architecture().to_owned(),
        templates,
    };
    let parsed = shoal_dockerfile::parse(text.as_str());
    let plan = parsed.and_then(|parsed| shoal_dockerfile::plan(&parsed, &options));
    let plan = plan.map_err(|problem| text.failure(problem))?;
    let context = Context::open(directory, file)?;
    let for_thread = text.clone();
    // Reading the files blocks.
    let staged = tokio::task::spawn_blocking(move || Staged::new(plan, &context, &for_thread));
    staged
        .await
        .map_err(|error| Failure::other(error.to_string()))?
}

/// The requested build, from `--tag` or the name of the context.
fn new_build(args: &BuildArgs, context: &Path) -> Result<NewBuild, Failure> {
    let mut name: Option<String> = None;
    let mut tags = Vec::new();
    for said in &args.tag {
        let (one, tag) = match said.rsplit_once(':') {
            Some((one, tag)) => (one, Some(tag)),
            None => (said.as_str(), None),
        };
        if name.as_deref().is_some_and(|name| name != one) {
            return Err(Failure::usage(
                "a build is of one template: each --tag has the same name",
            ));
        }
        name = Some(one.to_owned());
        tags.push(tag.unwrap_or(DEFAULT_TAG).to_owned());
    }
    // The server's default. A build with only this tag sends none, as E2B's clients do.
    if tags.iter().all(|tag| tag == DEFAULT_TAG) {
        tags.clear();
    }
    let name = match name {
        Some(name) => name,
        None => own_name(context)?,
    };
    Ok(NewBuild {
        name: Some(name),
        tags: (!tags.is_empty()).then_some(tags),
        cpu_count: args.cpu,
        memory_mb: args.memory,
        ..NewBuild::default()
    })
}

/// The name of a directory, converted to a template name.
fn own_name(directory: &Path) -> Result<String, Failure> {
    let directory = std::fs::canonicalize(directory).map_err(|error| {
        Failure::not_found(format!("the context {}: {error}", directory.display()))
    })?;
    let name = directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let good = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(good).collect();
    let name = name.trim_matches('-');
    if name.is_empty() {
        return Err(
            Failure::usage("the context's directory is no name for a template")
                .with_hint("Name it by -t NAME."),
        );
    }
    Ok(name.to_owned())
}

async fn start_build(
    server: &Connection,
    made: &RequestedBuild,
    start: &BuildStart,
) -> Result<(), Failure> {
    let path = format!("/v2{}", build_path(&made.template_id, &made.build_id));
    let body = to_value(start).map_err(|error| Failure::other(error.to_string()))?;
    server.post(&path, body).await
}

fn build_path(template: &str, build: &str) -> String {
    format!("/templates/{}/builds/{}", encode(template), encode(build))
}

fn split(asked: &str) -> Result<(&str, &str), Failure> {
    let halves = asked.rsplit_once('/');
    halves.ok_or_else(|| Failure::usage(format!("{asked:?} is no build: say TEMPLATE/BUILD")))
}

async fn cancel(server: &Connection, asked: &str) -> Result<(), Failure> {
    let (template, build) = split(asked)?;
    match server.delete(&build_path(template, build)).await {
        Err(failure) if failure.kind() == Kind::NotFound => {
            Err(failure.with_hint("It may have ended: --watch says how."))
        }
        done => done,
    }?;
    output::line(asked)
}
