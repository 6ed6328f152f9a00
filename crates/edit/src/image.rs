//! Parts of image names: `[registry/]repository[:tag][@digest]`.
//!
//! The first part of a path is the registry if it has a `.`, a `:` or a capital letter in it, or is `localhost`; else the
//! whole path is the repository. Every change gives a valid name or an error: nothing is dropped in silence.

use std::fmt;
use std::str::FromStr;

use grammar::{is_digest, is_registry, is_repository, is_tag, means_registry};

mod grammar;

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
    #[error(
        "{0:?} is not a registry: give a host with a dot or a port, as x.io or [::1]:5000, or localhost; its parts begin \
         and end with a letter or digit"
    )]
    NotARegistry(String),
    /// A repository that is none.
    #[error(
        "{0:?} is not a repository: lower-case words between slashes, inside them one . or _, two _, or any number of -"
    )]
    NotARepository(String),
    /// Neither tag nor digest.
    #[error(
        "{0:?} is neither a tag (such as v1.2) nor a digest (sha256:, sha384: or sha512: and 64, 96 or 128 digits 0-9 \
         and a-f)"
    )]
    NotATag(String),
    /// A digest that is none.
    #[error(
        "{0:?} is not a digest: it begins with sha256:, sha384: or sha512:, and has 64, 96 or 128 digits 0-9 and a-f"
    )]
    NotADigest(String),
    /// A digest cannot stand behind a tag, and in its place the tag would be lost.
    #[error("{0} has a tag, so a digest cannot be added to it: use replace")]
    DigestBehindTag(String),
    /// Both are there, so a new one would have to drop one of them.
    #[error("{0} has a tag and a digest; a new tag would lose the digest: remove the tag first, or replace by path")]
    TagAndDigest(String),
}

impl FromStr for Image {
    type Err = ImageError;

    fn from_str(name: &str) -> Result<Self, ImageError> {
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(check(digest, is_digest, ImageError::NotADigest)?)),
            None => (name, None),
        };
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if means_registry(first) => {
                (Some(check(first, is_registry, ImageError::NotARegistry)?), path)
            }
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
        }?;
        // Without a registry, what is first in the repository may be taken for one, and be none.
        self.to_string().parse::<Self>().map(|_| ())
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
            Operation::Add(value) => match (&self.tag, &self.digest) {
                (Some(_), _) if is_digest(bare(value)) => return Err(ImageError::DigestBehindTag(self.to_string())),
                (Some(tag), _) => {
                    // What is put behind a tag makes a longer tag, and nothing else.
                    self.tag = Some(check(&format!("{tag}{value}"), is_tag, ImageError::NotATag)?);
                    return Ok(());
                }
                (None, digest) => format!("{}{value}", digest.as_deref().unwrap_or_default()),
            },
        };
        if is_digest(bare(&wanted)) {
            (self.tag, self.digest) = (None, Some(bare(&wanted).to_owned()));
        } else {
            (self.tag, self.digest) = (Some(check(&wanted, is_tag, ImageError::NotATag)?), None);
        }
        Ok(())
    }
}

/// A digest may be written as people see it, with the @ before it.
fn bare(digest: &str) -> &str {
    digest.strip_prefix('@').unwrap_or(digest)
}

fn check(text: &str, is_valid: fn(&str) -> bool, error: fn(String) -> ImageError) -> Result<String, ImageError> {
    if is_valid(text) { Ok(text.to_owned()) } else { Err(error(text.to_owned())) }
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
            ("[::1]:5000/nginx:1", Some("[::1]:5000"), "nginx", Some("1"), None),
            ("REGISTRY/nginx", Some("REGISTRY"), "nginx", None, None),
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
        let digest = |kind: &str, digits: String| format!("a@{kind}:{digits}");
        for (name, part) in [
            ("-x.io/a", "not a registry"),
            ("x..io/a", "not a registry"),
            ("[::1/a", "not a registry"),
            ("a..b", "not a repository"),
            ("r.io/a..b:1", "not a repository"),
            (&digest("md5", "a".repeat(32)), "not a digest"),
            (&digest("sha1", "a".repeat(40)), "not a digest"),
            (&digest("sha256", "a".repeat(63)), "not a digest"),
            (&digest("sha384", "a".repeat(64)), "not a digest"),
            (&digest("sha512", "a".repeat(96)), "not a digest"),
            (&digest("sha256", "A".repeat(64)), "not a digest"),
        ] {
            let message = name.parse::<Image>().expect_err(name).to_string();
            assert!(message.contains(part), "{name}: {message}");
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
            ("nginx:1", Registry, Replace("[::1]"), "[::1]/nginx:1"),
            ("[::1]/nginx:1", Registry, Add(":5000"), "[::1]:5000/nginx:1"),
            ("nginx", Tag, Add(DIGEST), &format!("nginx@{DIGEST}")),
            ("nginx", Tag, Add(&at), &format!("nginx@{DIGEST}")),
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
        let (both, at) = (format!("a:v1@{DIGEST}"), format!("@{DIGEST}"));
        for (image, component, operation, part) in [
            (both.as_str(), Tag, Replace("v2"), "lose the digest"),
            ("r.io/a:v1", Repository, Remove, "cannot be removed"),
            ("a:v1", Tag, Replace("v 2"), "neither a tag"),
            ("a:v1", Tag, Replace(""), "neither a tag"),
            ("a:v1", Tag, Replace("@sha256:12"), "neither a tag"),
            (&format!("a@{DIGEST}"), Tag, Add("-arm"), "neither a tag"),
            ("a:v1", Tag, Add(DIGEST), "a:v1 has a tag, so a digest cannot be added to it: use replace"),
            ("a:v1", Tag, Add(&at), "use replace"),
            ("a:sha", Tag, Add(&DIGEST["sha".len()..]), "neither a tag"),
            (both.as_str(), Tag, Add(DIGEST), "has a tag and a digest"),
            ("a:v1", Tag, Replace("md5:0cc175b9c0f1b6a831c399e269772661"), "neither a tag"),
            ("a:v1", Registry, Replace("-x.io"), "not a registry"),
            ("a:v1", Registry, Replace("x..io"), "not a registry"),
            ("a:v1", Repository, Replace("a..b"), "not a repository"),
            ("r.io/x_y.z/a", Registry, Remove, "not a registry"),
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
        fn results_are_valid(image in "[a-z.:/@0-9A-Z_-]{0,20}", value in "[a-z.:/@0-9A-Z_-]{0,12}", part in 0..3usize, what in 0..3usize) {
            let component = [Registry, Repository, Tag][part];
            let operation = [Add(value.as_str()), Replace(value.as_str()), Remove][what];
            if let Ok(result) = changed(&image, component, operation) {
                prop_assert_eq!(result.parse::<Image>().map(|image| image.to_string()), Ok(result));
            }
        }
    }
}
