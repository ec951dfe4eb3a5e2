# The variant without a relay: a pipe from the table's stream to the bus.
#
# It inserts nothing, marks nothing, and remembers nothing for longer than the stream's 24 hours; what it gives up is a dead
# letter that names a record of the stream, not an event.
resource "aws_sqs_queue" "pipe_dead" {
  count                     = var.pipe ? 1 : 0
  name                      = "${var.name}-pipe-dead"
  message_retention_seconds = 14 * 86400
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

data "aws_iam_policy_document" "pipe_trust" {
  count = var.pipe ? 1 : 0
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["pipes.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

data "aws_iam_policy_document" "pipe" {
  count = var.pipe ? 1 : 0
  statement {
    actions   = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"]
    resources = [aws_dynamodb_table.outbox.stream_arn]
  }
  statement {
    # This one knows no single stream.
    actions   = ["dynamodb:ListStreams"]
    resources = ["*"]
  }
  statement {
    actions   = ["events:PutEvents"]
    resources = [aws_cloudwatch_event_bus.events.arn]
  }
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.pipe_dead[0].arn]
  }
}

resource "aws_iam_role" "pipe" {
  count              = var.pipe ? 1 : 0
  name               = "${var.name}-pipe"
  assume_role_policy = data.aws_iam_policy_document.pipe_trust[0].json
  tags               = var.tags
}

resource "aws_iam_role_policy" "pipe" {
  count  = var.pipe ? 1 : 0
  role   = aws_iam_role.pipe[0].id
  policy = data.aws_iam_policy_document.pipe[0].json
}

resource "aws_pipes_pipe" "events" {
  count    = var.pipe ? 1 : 0
  name     = var.name
  role_arn = aws_iam_role.pipe[0].arn
  source   = aws_dynamodb_table.outbox.stream_arn
  target   = aws_cloudwatch_event_bus.events.arn
  tags     = var.tags

  source_parameters {
    dynamodb_stream_parameters {
      starting_position                  = "TRIM_HORIZON"
      batch_size                         = 10
      maximum_retry_attempts             = -1
      maximum_record_age_in_seconds      = -1
      on_partial_batch_item_failure      = "AUTOMATIC_BISECT"
      parallelization_factor             = 1
      maximum_batching_window_in_seconds = 0
      dead_letter_config {
        arn = aws_sqs_queue.pipe_dead[0].arn
      }
    }
    # Inserts of events alone: marks, removals, and what else lives in the table say nothing to anybody.
    filter_criteria {
      filter {
        pattern = jsonencode({
          eventName = ["INSERT"]
          dynamodb  = { Keys = { sk = { S = [{ prefix = "OUTBOX#" }] } } }
        })
      }
    }
  }

  target_parameters {
    eventbridge_event_bus_parameters {
      detail_type = "$.dynamodb.NewImage.event_type.S"
      source      = var.name
    }
    # The domain's event, not the table's record of it. A pipe knows no way to make the payload's text an object again.
    input_template = <<-TEMPLATE
      {
        "id": <$.dynamodb.NewImage.id.S>,
        "type": <$.dynamodb.NewImage.event_type.S>,
        "subject": <$.dynamodb.NewImage.aggregate_id.S>,
        "data": <$.dynamodb.NewImage.payload.S>
      }
    TEMPLATE
  }

  lifecycle {
    precondition {
      condition     = !var.derived
      error_message = "A pipe knows no mapping: items of yours that are events would never be delivered. Use a relay, or functions."
    }
  }
}
