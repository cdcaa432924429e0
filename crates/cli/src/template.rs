//! `shoal template`.

mod build;
mod catalogue;

use clap::{Args, Subcommand};
use http::Method;
use serde::Serialize;
use shoal_core::similar::nearest;
use shoal_protocol::native::{Catalogue, NewTemplate, Template};

use crate::calls::encode;
use crate::connection::{Connection, ConnectionArgs};
use crate::failure::{EXIT_CODES, Failure, Kind};
use crate::output::{self, Table};
use crate::parse;

/// The commands of `shoal template`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TemplateArgs {
    #[command(subcommand)]
    command: TemplateCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum TemplateCommand {
    /// List templates, the newest first, and then the catalogue.
    #[command(visible_alias = "list")]
    Ls,
    /// Show the details of a template.
    Get(NameArgs),
    /// Create a template from an image on the server's machine.
    Create(Box<CreateArgs>),
    /// Build a template from a Dockerfile.
    Build(Box<build::BuildArgs>),
    /// Remove templates that no sandbox uses, single tags, or catalogue entries.
    #[command(visible_alias = "delete")]
    Rm(RemoveArgs),
    /// Replace the catalogue.
    Apply(catalogue::ApplyArgs),
    /// Show which template and image a name resolves to, and where each value comes from.
    Resolve(catalogue::ResolveArgs),
    /// Check a catalogue file, without a server.
    Lint(catalogue::LintArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The template, by name or id.
    name: String,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Names or ids. NAME:TAG removes that tag only.
    #[arg(required = true, value_name = "NAME[:TAG]")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shoal image pull python:3.13-slim
  shoal template create py --image python:3.13-slim --memory 512M --cpu 1
  shoal sandbox create --template py")]
struct CreateArgs {
    /// The template's name: a-z, 0-9, _ and -.
    name: String,
    /// The image.
    #[arg(long, value_name = "NAME")]
    image: String,
    /// Processors: 2, 0.5, 500m [default: 2].
    #[arg(long, value_name = "NUMBER", value_parser = parse::milli_cpu)]
    cpu: Option<u32>,
    /// Memory: 512M, 2G [default: 1G].
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    memory: Option<u32>,
    /// Disk of a sandbox: 512M, 20G [default: 10G].
    #[arg(long, value_name = "SIZE", value_parser = parse::mebibytes)]
    disk: Option<u32>,
    /// Processes and threads [default: 4096].
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u32>,
    /// The OCI runtime: runsc (gVisor) or runc [default: the server's].
    #[arg(long, value_name = "NAME")]
    runtime: Option<String>,
    /// Default contents of pauses and snapshots: filesystem, or memory,filesystem
    /// [default: both].
    #[arg(long, value_name = "WHAT")]
    keep: Option<String>,
    /// Maximum processors after a resize [default: 4 times --cpu].
    #[arg(long, value_name = "NUMBER", value_parser = parse::milli_cpu)]
    max_cpu: Option<u32>,
    /// The user of commands [default: the image's, else root].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The working directory [default: the image's, else the user's home].
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// A variable in the environment of every process; repeatable.
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse::pair)]
    env: Vec<(String, String)>,
    /// Publish it to other teams.
    #[arg(long)]
    public: bool,
    /// A description in one line.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    description: String,
}

pub(crate) async fn run(args: TemplateArgs) -> Result<u8, Failure> {
    let json = args.connection.json();
    // Needed by all but one.
    let server = args.connection.resolve();
    match args.command {
        TemplateCommand::Ls => list(&server?, json).await?,
        TemplateCommand::Get(args) => get(&server?, &args.name, json).await?,
        TemplateCommand::Create(args) => create(&server?, *args, json).await?,
        TemplateCommand::Build(args) => return build::run(&server?, *args, json).await,
        TemplateCommand::Rm(args) => return remove(&server?, args).await,
        TemplateCommand::Apply(args) => catalogue::apply(&server?, args, json).await?,
        TemplateCommand::Resolve(args) => catalogue::resolve(&server?, args, json).await?,
        TemplateCommand::Lint(args) => return catalogue::lint(&args, json),
    }
    Ok(0)
}

fn name(template: &Template) -> String {
    match template.names.first() {
        Some(name) => name.clone(),
        None => template.id.clone(),
    }
}

/// The displayed state: the wire calls a failed build `error`.
fn state(state: &str) -> &str {
    match state {
        "error" => "failed",
        state => state,
    }
}

fn processors(milli: u32) -> String {
    format!("{}", f64::from(milli) / 1000.0)
}

/// Lists templates and catalogue entries.
#[derive(Debug, Serialize)]
struct Listed {
    templates: Vec<Template>,
    catalogue: Catalogue,
}

async fn list(server: &Connection, json: bool) -> Result<(), Failure> {
    let templates: Vec<Template> = server.native_get("/templates").await?;
    let catalogue = catalogue::in_force(server).await?;
    if json {
        return output::json(&Listed {
            templates,
            catalogue,
        });
    }
    let mut table = Table::new(&[
        "NAME",
        "TAGS",
        "STATE",
        "ID",
        "IMAGE",
        "CPU",
        "MEMORY",
        "DISK",
        "DESCRIPTION",
    ]);
    for template in templates {
        table.row([
            name(&template),
            template.tags.join(" "),
            state(&template.state).to_owned(),
            template.id,
            template.image,
            processors(template.cpu_milli),
            format!("{} MiB", template.memory_mb),
            format!("{} MiB", template.disk_size_mb),
            template.description,
        ]);
    }
    catalogue::list(catalogue, &mut table);
    table.print()
}

async fn get(server: &Connection, asked: &str, json: bool) -> Result<(), Failure> {
    let path = format!("/templates/{}", encode(asked));
    let found: Result<Template, Failure> = server.native_get(&path).await;
    // A template of the team's own goes before the catalogue, and that before those of all.
    let own = found.as_ref().is_ok_and(|template| !template.stock);
    if !own
        && let Ok(in_force) = catalogue::in_force(server).await
        && let Some(entry) = catalogue::entry(&in_force, asked)
    {
        return catalogue::show(&in_force, entry, json);
    }
    let template = match found {
        Err(failure) => return Err(with_near(server, asked, failure).await),
        Ok(template) => template,
    };
    if json {
        return output::json(&template);
    }
    show(template)
}

fn show(template: Template) -> Result<(), Failure> {
    let failed = template.state != Template::READY;
    let failure = template.failure.unwrap_or_default();
    let env = template.env.iter();
    let env: Vec<String> = env.map(|(name, value)| format!("{name}={value}")).collect();
    output::fields(&[
        ("name", template.names.join(" ")),
        ("tags", template.tags.join(" ")),
        ("state", state(&template.state).to_owned()),
        (
            if failed {
                "failure"
            } else {
                "latest build failed"
            },
            failure,
        ),
        ("id", template.id),
        ("description", template.description),
        ("image", template.image),
        ("processors", processors(template.cpu_milli)),
        ("memory", format!("{} MiB", template.memory_mb)),
        ("disk", format!("{} MiB", template.disk_size_mb)),
        ("pids", template.pids.to_string()),
        ("runtime", template.runtime.unwrap_or_default()),
        ("keeps", template.persistent_contents.join(",")),
        (
            "at most",
            template.max_cpu_milli.map(processors).unwrap_or_default(),
        ),
        ("user", template.user),
        ("workdir", template.workdir.unwrap_or_default()),
        ("env", env.join(" ")),
        (
            "shared with",
            if template.public {
                "all teams"
            } else {
                "its team"
            }
            .to_owned(),
        ),
        ("made", template.created_at),
        ("changed", template.updated_at),
    ])
}

async fn create(server: &Connection, args: CreateArgs, json: bool) -> Result<(), Failure> {
    let new = NewTemplate {
        name: args.name,
        image: args.image,
        cpu_milli: args.cpu,
        memory_mb: args.memory,
        disk_size_mb: args.disk,
        pids: args.pids,
        runtime: args.runtime,
        persistent_contents: args
            .keep
            .map(|keep| keep.split(',').map(|word| word.trim().to_owned()).collect()),
        max_cpu_milli: args.max_cpu,
        user: args.user,
        workdir: args.workdir,
        env: args.env.into_iter().collect(),
        public: args.public,
        description: args.description,
    };
    let made: Template = server
        .native(Method::POST, "/templates", Some(&new))
        .await?;
    if json {
        return output::json(&made);
    }
    output::line(&name(&made))
}

async fn remove(server: &Connection, args: RemoveArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for name in args.names {
        match remove_one(server, &name).await {
            Ok(()) => output::line(&name)?,
            Err(failure) => {
                let failure = with_near(server, &name, failure).await;
                failure.tell();
                code = failure.code();
            }
        }
    }
    Ok(code)
}

/// Removes a template or a catalogue entry. Refuses an ambiguous name.
async fn remove_one(server: &Connection, name: &str) -> Result<(), Failure> {
    let path = format!("/templates/{}", encode(name));
    let in_force = catalogue::in_force(server).await?;
    let template = server.native_get::<Template>(&path).await;
    if catalogue::entry(&in_force, name).is_none() {
        return match template {
            // E2B's route lets a team remove its own; for a name of no template it would remove
            // a snapshot.
            Ok(template) if !template.stock => server.delete(&path).await,
            _ => server.native_delete(&path).await,
        };
    }
    if let Ok(template) = template {
        let message = format!("both a template and a catalogue entry have the name {name}");
        let hint = format!(
            "Remove the template by its id, {}, or the entry by `shoal template apply`.",
            template.id
        );
        return Err(Failure::usage(message).with_hint(hint));
    }
    catalogue::remove(server, in_force, name).await
}

/// Adds a similar name when a template does not exist.
pub(crate) async fn with_near(server: &Connection, name: &str, failure: Failure) -> Failure {
    if failure.kind() != Kind::NotFound {
        return failure;
    }
    let known: Vec<Template> = server.native_get("/templates").await.unwrap_or_default();
    let mut names: Vec<String> = known.into_iter().flat_map(|t| t.names).collect();
    if let Ok(in_force) = catalogue::in_force(server).await {
        names.extend(catalogue::names(&in_force));
    }
    let bare = name.split(':').next().unwrap_or(name);
    if names.iter().any(|known| known == bare) {
        // The template exists, and the message names the missing part.
        return failure;
    }
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => failure.with_hint(format!("Did you mean {near}?")),
        None => failure.with_hint("`shoal template ls` lists the existing ones."),
    }
}
