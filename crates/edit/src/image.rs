//! Parts of image names: `[registry/]repository[:tag][@digest]`.
//!
//! The first part of a path is the registry if it has a `.` or a `:` in it, or is `localhost`; else the whole path is the
//! repository. Every change gives a valid name or an error: nothing is dropped in silence.

use std::fmt;
use std::str::FromStr;

/// An image name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    registry: Option<String>,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A part of an image name that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Where the image is pulled from.
    Registry,
    /// The path below the registry.
    Repository,
    /// The tag or the digest.
    Tag,
}

/// What to do with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Put this behind what is there.
    Add(&'a str),
    /// Put this in its place.
    Replace(&'a str),
    /// Take it away.
    Remove,
}

/// Why an image name, or a change to one, is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The name has no repository.
    #[error("the image {0:?} has no repository")]
    NoRepository(String),
    /// The repository is what makes an image: without it nothing is left.
    #[error("the repository of {0} cannot be removed, since nothing would be left to pull")]
    RepositoryRemoved(String),
    /// A registry that is none.
    #[error("{0:?} is not a registry: give a host with a dot or a port, or localhost")]
    NotARegistry(String),
    /// A repository that is none.
    #[error("{0:?} is not a repository: lower-case words, with . _ - inside, between slashes")]
    NotARepository(String),
    /// Neither tag nor digest.
    #[error("{0:?} is neither a tag (such as v1.2) nor a digest (such as sha256:… with 64 digits)")]
    NotATag(String),
    /// Both are there, so a new one would have to drop one of them.
    #[error("{0} has a tag and a digest; a new tag would lose the digest: remove the tag first, or replace by path")]
    TagAndDigest(String),
}

impl FromStr for Image {
    type Err = ImageError;

    fn from_str(name: &str) -> Result<Self, ImageError> {
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(check(digest, is_digest, ImageError::NotATag)?)),
            None => (name, None),
        };
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if is_registry(first) => (Some(first.to_owned()), path),
            _ => (None, rest),
        };
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(check(tag, is_tag, ImageError::NotATag)?)),
            None => (path, None),
        };
        if repository.is_empty() {
            return Err(ImageError::NoRepository(name.to_owned()));
        }
        let repository = check(repository, is_repository, ImageError::NotARepository)?;
        Ok(Self { registry, repository, tag, digest })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(registry) = &self.registry {
            write!(f, "{registry}/")?;
        }
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl Image {
    /// Whether it stands for whatever is newest: the tag `latest`, or neither tag nor digest.
    pub fn is_latest(&self) -> bool {
        match &self.tag {
            Some(tag) => tag == "latest",
            None => self.digest.is_none(),
        }
    }

    /// The name with nothing left to guess, as container runtimes report it: Docker's registry where none is said, and
    /// `latest` where neither tag nor digest is.
    pub fn in_full(&self) -> Self {
        let registry = match self.registry.as_deref() {
            None | Some("index.docker.io") => "docker.io",
            Some(registry) => registry,
        };
        let is_official = registry == "docker.io" && !self.repository.contains('/');
        let repository = if is_official { format!("library/{}", self.repository) } else { self.repository.clone() };
        let latest = self.digest.is_none().then(|| "latest".to_owned());
        Self {
            registry: Some(registry.to_owned()),
            repository,
            tag: self.tag.clone().or(latest),
            digest: self.digest.clone(),
        }
    }

    /// Changes one part.
    pub fn change(&mut self, component: Component, operation: Operation<'_>) -> Result<(), ImageError> {
        match component {
            Component::Registry => self.change_registry(operation),
            Component::Repository => self.change_repository(operation),
            Component::Tag => self.change_tag(operation),
        }
    }

    fn change_registry(&mut self, operation: Operation<'_>) -> Result<(), ImageError> {
        let wanted = match operation {
            Operation::Remove => {
                self.registry = None;
                return Ok(());
            }
            Operation::Replace(value) => value.to_owned(),
            Operation::Add(value) => format!("{}{value}", self.registry.as_deref().unwrap_or_default()),
        };
        self.registry = Some(check(&wanted, is_registry, ImageError::NotARegistry)?);
        Ok(())
    }

    fn change_repository(&mut self, operation: Operation<'_>) -> Result<(), ImageError> {
        let wanted = match operation {
            Operation::Remove => return Err(ImageError::RepositoryRemoved(self.to_string())),
            Operation::Replace(value) => value.to_owned(),
            Operation::Add(value) => format!("{}{value}", self.repository),
        };
        self.repository = check(&wanted, is_repository, ImageError::NotARepository)?;
        Ok(())
    }

    fn change_tag(&mut self, operation: Operation<'_>) -> Result<(), ImageError> {
        let wanted = match operation {
            Operation::Remove => {
                // The tag first: a digest without its tag still names the same image.
                if self.tag.take().is_none() {
                    self.digest = None;
                }
                return Ok(());
            }
            _ if self.tag.is_some() && self.digest.is_some() => return Err(ImageError::TagAndDigest(self.to_string())),
            Operation::Replace(value) => value.to_owned(),
            Operation::Add(value) => {
                let known = self.tag.as_deref().or(self.digest.as_deref()).unwrap_or_default();
                format!("{known}{value}")
            }
        };
        // A digest may be written as people see it, with the @ before it.
        let digest = wanted.strip_prefix('@').unwrap_or(&wanted);
        if is_digest(digest) {
            (self.tag, self.digest) = (None, Some(digest.to_owned()));
        } else {
            (self.tag, self.digest) = (Some(check(&wanted, is_tag, ImageError::NotATag)?), None);
        }
        Ok(())
    }
}

fn check(text: &str, is_valid: fn(&str) -> bool, error: fn(String) -> ImageError) -> Result<String, ImageError> {
    if is_valid(text) { Ok(text.to_owned()) } else { Err(error(text.to_owned())) }
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_host =
        !host.is_empty() && host.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-".contains(letter));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    is_host && is_port && (host.contains('.') || port.is_some() || host == "localhost")
}

fn is_repository(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_word = |word: &str| {
        word.starts_with(fits)
            && word.ends_with(fits)
            && word.chars().all(|letter| fits(letter) || "._-".contains(letter))
    };
    text.split('/').all(is_word)
}

fn is_tag(text: &str) -> bool {
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    starts && text.len() <= 128 && text.chars().all(fits)
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let names = algorithm.starts_with(|letter: char| letter.is_ascii_lowercase())
        && algorithm.chars().all(|letter| letter.is_ascii_alphanumeric() || "+._-".contains(letter));
    let long_enough = if algorithm == "sha256" { hex.len() == 64 } else { hex.len() >= 32 };
    names && long_enough && hex.chars().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::Component::{Registry, Repository, Tag};
    use super::Operation::{Add, Remove, Replace};
    use super::*;
    use proptest::prelude::*;

    const DIGEST: &str = "sha256:dbcc1c35ac38df41fd2f5e4130b32ffdb93ebae8b3dbe638c23575912276fc9c";

    fn changed(image: &str, component: Component, operation: Operation<'_>) -> Result<String, ImageError> {
        let mut image: Image = image.parse()?;
        image.change(component, operation)?;
        Ok(image.to_string())
    }

    #[test]
    fn names_are_taken_apart() {
        for (name, registry, repository, tag, digest) in [
            ("nginx", None, "nginx", None, None),
            ("nginx:1.2", None, "nginx", Some("1.2"), None),
            ("library/nginx", None, "library/nginx", None, None),
            ("k8s.gcr.io/kube-apiserver", Some("k8s.gcr.io"), "kube-apiserver", None, None),
            (
                "fictional.registry.example:10443/x/nginx:v1",
                Some("fictional.registry.example:10443"),
                "x/nginx",
                Some("v1"),
                None,
            ),
            ("localhost/nginx", Some("localhost"), "nginx", None, None),
            (&format!("r.io/a@{DIGEST}"), Some("r.io"), "a", None, Some(DIGEST)),
            (&format!("a:v1@{DIGEST}"), None, "a", Some("v1"), Some(DIGEST)),
        ] {
            let image: Image = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((image.registry.as_deref(), image.repository.as_str()), (registry, repository), "{name}");
            assert_eq!((image.tag.as_deref(), image.digest.as_deref()), (tag, digest), "{name}");
            assert_eq!(image.to_string(), name);
        }
    }

    #[test]
    fn names_in_full_leave_nothing_to_guess() {
        let digested = format!("docker.io/library/a@{DIGEST}");
        for (name, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("library/nginx:1", "docker.io/library/nginx:1"),
            ("index.docker.io/nginx:1", "docker.io/library/nginx:1"),
            ("someone/nginx", "docker.io/someone/nginx:latest"),
            ("r.io/nginx:1", "r.io/nginx:1"),
            ("localhost:5000/nginx", "localhost:5000/nginx:latest"),
            (&format!("a@{DIGEST}"), &digested),
        ] {
            let full = name.parse::<Image>().unwrap().in_full();
            assert_eq!(full.to_string(), expected);
            assert_eq!(full.in_full(), full);
        }
    }

    #[test]
    fn bad_names_are_refused() {
        for name in ["", ":v1", "r.io/", "Nginx", "a b", "a:", "a:v 1", "a@sha256:12", "a//b", "-a", "r.io:x/a"] {
            assert!(name.parse::<Image>().is_err(), "{name:?} was taken");
        }
    }

    #[test]
    fn parts_are_changed() {
        let digested = format!("r.io/a@{DIGEST}");
        let at = format!("@{DIGEST}");
        for (image, component, operation, expected) in [
            ("nginx:1", Registry, Replace("beijing.registry.io"), "beijing.registry.io/nginx:1"),
            ("old.io/x/nginx", Registry, Replace("new.io:5000"), "new.io:5000/x/nginx"),
            ("old.io/nginx", Registry, Add(".cn"), "old.io.cn/nginx"),
            ("nginx", Registry, Add("r.io"), "r.io/nginx"),
            ("old.io/nginx:1", Registry, Remove, "nginx:1"),
            ("r.io/nginx:1", Repository, Replace("edge/nginx"), "r.io/edge/nginx:1"),
            ("r.io/nginx:1", Repository, Add("-slim"), "r.io/nginx-slim:1"),
            ("nginx:1", Tag, Replace("2"), "nginx:2"),
            ("nginx", Tag, Add("2"), "nginx:2"),
            ("nginx:1", Tag, Add("-arm"), "nginx:1-arm"),
            ("nginx:1", Tag, Remove, "nginx"),
            ("nginx:1", Tag, Replace(&at), &format!("nginx@{DIGEST}")),
            ("nginx:1", Tag, Replace(DIGEST), &format!("nginx@{DIGEST}")),
            (&digested, Tag, Replace("v2"), "r.io/a:v2"),
            (&digested, Tag, Remove, "r.io/a"),
            (&format!("a:v1@{DIGEST}"), Tag, Remove, &format!("a@{DIGEST}")),
            (&format!("a:v1@{DIGEST}"), Registry, Replace("r.io"), &format!("r.io/a:v1@{DIGEST}")),
        ] {
            assert_eq!(
                changed(image, component, operation).as_deref(),
                Ok(expected),
                "{image} {component:?} {operation:?}"
            );
        }
    }

    #[test]
    fn what_would_be_lost_or_broken_is_an_error() {
        let both = format!("a:v1@{DIGEST}");
        for (image, component, operation, part) in [
            (both.as_str(), Tag, Replace("v2"), "lose the digest"),
            ("r.io/a:v1", Repository, Remove, "cannot be removed"),
            ("a:v1", Tag, Replace("v 2"), "neither a tag"),
            ("a:v1", Tag, Replace(""), "neither a tag"),
            ("a:v1", Tag, Replace("@sha256:12"), "neither a tag"),
            (&format!("a@{DIGEST}"), Tag, Add("-arm"), "neither a tag"),
            ("a:v1", Registry, Replace("registry"), "not a registry"),
            ("a:v1", Repository, Replace("Edge"), "not a repository"),
        ] {
            let message = changed(image, component, operation).expect_err(image).to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    proptest! {
        /// Whatever is changed, what comes out is a name that reads back as itself, or an error; and nothing panics.
        #[test]
        fn results_are_valid(image in "[a-z.:/@0-9A-Z-]{0,20}", value in "[a-z.:/@0-9A-Z-]{0,12}", part in 0..3usize, what in 0..3usize) {
            let component = [Registry, Repository, Tag][part];
            let operation = [Add(value.as_str()), Replace(value.as_str()), Remove][what];
            if let Ok(result) = changed(&image, component, operation) {
                prop_assert_eq!(result.parse::<Image>().map(|image| image.to_string()), Ok(result));
            }
        }
    }
}
