variable "name" {
  description = "Begins the names of everything that is made, and with a hyphen behind it the prefix of the tables: lower case, digits, and hyphens."
  type        = string
  default     = "postrider"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,40}$", var.name))
    error_message = "Use 2 to 41 lower-case letters, digits, and hyphens, beginning with a letter."
  }
}

variable "partitions" {
  description = "Into how many partitions keys are divided, which is how many relays can share the table, and 500 events a second each. Never changed afterwards."
  type        = number
  default     = 8
  validation {
    condition     = var.partitions >= 1 && var.partitions <= 256 && floor(var.partitions) == var.partitions
    error_message = "1 to 256 partitions."
  }
}

variable "initialised" {
  description = "Whether `postrider init` made the store before: then it says what it is, and Terraform cannot write it a second time."
  type        = bool
  default     = false
}

variable "event_source" {
  description = "The source of events that name none: a URI reference, such as /shop or https://shop.example.com/orders."
  type        = string
  default     = "/postrider"
  validation {
    condition     = length(var.event_source) > 0
    error_message = "A source is a URI reference that is not empty."
  }
}

variable "business_tables" {
  description = "ARNs of the tables that the application changes in the same transactions."
  type        = list(string)
  default     = []
}

variable "queues" {
  description = "One queue for each service that listens: its name, whether it is FIFO, and how long its handler may take."
  type = map(object({
    fifo               = optional(bool, false)
    visibility_seconds = optional(number, 60)
    # Which events it hears, as the pattern of a rule on the bus. A FIFO queue is written by the relay itself.
    detail_types = optional(list(string), [])
  }))
  default = {}
  validation {
    condition     = alltrue([for queue in values(var.queues) : queue.visibility_seconds >= 15 && queue.visibility_seconds <= 43200])
    error_message = "A visibility lasts 15 s to 12 h."
  }
}

variable "redeliver_days" {
  description = "How long a message may stay in a queue or its dead letters. The inbox remembers longer than this (35 days by default)."
  type        = number
  default     = 7
  validation {
    condition     = var.redeliver_days >= 1 && var.redeliver_days <= 13
    error_message = "1 to 13 days: dead letters are kept for 14, which is the most, and have to outlive the queue's."
  }
}

variable "receives_max" {
  description = "After how many deliveries SQS itself moves a message to the dead letters. Far above what a handler may fail: SQS counts every delivery, also those that found the lease taken, or the endpoint away."
  type        = number
  default     = 500
  validation {
    condition     = var.receives_max >= 100 && var.receives_max <= 1000
    error_message = "100 to 1000: fewer, and an outage of an hour makes dead letters."
  }
}

variable "pipe" {
  description = "Deliver by EventBridge Pipes instead of a relay: no process to run, no order by key, nothing marked, and nothing found again after 24 hours."
  type        = bool
  default     = false
}

variable "derived" {
  description = "Whether items of yours stand in the outbox's table and are events by themselves, by a stamp: then their writes invoke the function on the stream, which needs a mapping. A pipe does not carry them."
  type        = bool
  default     = false
}

variable "functions" {
  description = "Images in ECR with functions of yours, as docs/guide/aws-lambda.md has them: `publish` is invoked by the outbox's stream, `sweep` once a minute, and those of `consume` by the queue of their name. Empty for none."
  type = object({
    publish = optional(string, "")
    sweep   = optional(string, "")
    consume = optional(map(string), {})
  })
  default = {}
  validation {
    condition     = alltrue([for key in keys(var.functions.consume) : contains(keys(var.queues), key)])
    error_message = "A function consumes a queue of `queues`."
  }
  validation {
    condition     = var.functions.publish == "" || var.functions.sweep != ""
    error_message = "A function on the stream needs the sweep: retries that are due, and what the stream does not tell of, are its."
  }
  validation {
    condition     = alltrue([for key in keys(var.functions.consume) : var.queues[key].visibility_seconds >= 60 && var.queues[key].visibility_seconds <= 5400])
    error_message = "The visibility of a queue with a function is six times the function's time, which is 10 s to 900 s: 60 s to 5,400 s."
  }
}

variable "alarm_topic" {
  description = "The SNS topic that hears alarms; empty for none."
  type        = string
  default     = ""
}

variable "relay_metrics" {
  description = "Where CloudWatch has the metrics of a relay process, if its agent reads them from the page that `listen` in [observe] opens: the namespace, and the dimensions that the agent gives them. Null where nobody does."
  type = object({
    namespace  = string
    dimensions = map(string)
  })
  default = null
}

variable "age_max_seconds" {
  description = "How old the oldest message of a queue, or the oldest event that a relay has not delivered, may be before somebody is told."
  type        = number
  default     = 300
}

variable "tags" {
  description = "On everything that is made."
  type        = map(string)
  default     = {}
}
