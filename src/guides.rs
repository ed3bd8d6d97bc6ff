//! The code of the guides, compiled and run as documentation tests: what a page shows, works.

#[doc = include_str!("../docs/quick-start.md")]
struct QuickStart;

#[doc = include_str!("../docs/tutorial.md")]
struct Tutorial;

#[doc = include_str!("../docs/choose-a-contract.md")]
struct ChooseAContract;

#[doc = include_str!("../docs/http-tools.md")]
struct HttpTools;

#[doc = include_str!("../docs/command-tools.md")]
struct CommandTools;

#[doc = include_str!("../docs/tool-file.md")]
struct ToolsFromAFile;

#[doc = include_str!("../docs/secrets.md")]
struct SecretsAndRedaction;

#[doc = include_str!("../docs/encryption.md")]
struct EncryptionAtRest;

#[doc = include_str!("../docs/approvals.md")]
struct Approvals;

#[doc = include_str!("../docs/questions.md")]
struct Questions;

#[doc = include_str!("../docs/evidence.md")]
struct EvidenceOfACall;

#[doc = include_str!("../docs/api.md")]
struct Api;

#[doc = include_str!("../docs/guard-service.md")]
struct GuardService;

#[doc = include_str!("../docs/client.md")]
struct Clients;

#[doc = include_str!("../docs/traces.md")]
struct Traces;

#[doc = include_str!("../docs/metrics.md")]
struct Metrics;

#[doc = include_str!("../docs/production-checklist.md")]
struct ProductionChecklist;

#[doc = include_str!("../docs/coming-from.md")]
struct ComingFrom;

#[doc = include_str!("../README.md")]
struct Readme;

#[doc = include_str!("../docs/clippy.md")]
struct Clippy;

#[doc = include_str!("../docs/sizes-and-names.md")]
struct SizesAndNames;
