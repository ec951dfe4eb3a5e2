# Functions of Lambda: roles, and those that the outbox's stream and the queues invoke. `sweep.tf` has the scheduled one.
locals {
  sweep   = var.functions.sweep == "" ? 0 : 1
  publish = var.functions.publish == "" ? 0 : 1
  roles = merge(
    local.publish == 1 ? { publish = aws_iam_policy.relay.arn } : {},
    local.sweep == 1 ? { sweep = aws_iam_policy.relay.arn } : {},
    { for key in keys(var.functions.consume) : "consume-${key}" => aws_iam_policy.consumer[key].arn },
  )
  environment = {
    POSTRIDER_PREFIX = "${var.name}-"
    POSTRIDER_BUS    = aws_cloudwatch_event_bus.events.name
  }
}

data "aws_iam_policy_document" "function_trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "function" {
  for_each           = local.roles
  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.function_trust.json
  tags               = var.tags
}

resource "aws_iam_role_policy_attachment" "function" {
  for_each   = local.roles
  role       = aws_iam_role.function[each.key].name
  policy_arn = each.value
}

resource "aws_iam_role_policy_attachment" "function_logs" {
  for_each   = local.roles
  role       = aws_iam_role.function[each.key].name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}

data "aws_iam_policy_document" "publish_stream" {
  statement {
    # The event source's, beside what a relay may; this one knows no single stream.
    actions   = ["dynamodb:ListStreams"]
    resources = ["*"]
  }
}

resource "aws_iam_role_policy" "publish_stream" {
  count  = local.publish
  role   = aws_iam_role.function["publish"].id
  policy = data.aws_iam_policy_document.publish_stream.json
}

resource "aws_lambda_function" "publish" {
  count         = local.publish
  function_name = "${var.name}-publish"
  role          = aws_iam_role.function["publish"].arn
  package_type  = "Image"
  image_uri     = var.functions.publish
  timeout       = 30
  memory_size   = 256
  tags          = var.tags
  environment {
    variables = local.environment
  }
}

resource "aws_lambda_event_source_mapping" "publish" {
  count                              = local.publish
  event_source_arn                   = aws_dynamodb_table.outbox.stream_arn
  function_name                      = aws_lambda_function.publish[0].arn
  starting_position                  = "TRIM_HORIZON"
  batch_size                         = 100
  maximum_batching_window_in_seconds = 1
  # Without it any answer is success.
  function_response_types = ["ReportBatchItemFailures"]
  # Nothing is lost when the service gives up: the index has it, and the sweep finds it.
  maximum_retry_attempts = 10
  filter_criteria {
    # Inserts of events: marks and deletions invoke nobody.
    filter {
      pattern = jsonencode({
        eventName = ["INSERT"]
        dynamodb  = { Keys = { sk = { S = [{ prefix = "OUTBOX#" }] } } }
      })
    }
    # Writes of your own items with a stamp, which are events by themselves. Publication takes `pr_shard` away, so it
    # invokes nobody.
    dynamic "filter" {
      for_each = var.derived ? [1] : []
      content {
        pattern = jsonencode({
          eventName = ["INSERT", "MODIFY"]
          dynamodb = {
            NewImage = { pr_shard = { S = [{ prefix = "p" }] }, pr_event = { S = [{ exists = true }] } }
          }
        })
      }
    }
  }
}

resource "aws_lambda_function" "consume" {
  for_each      = var.functions.consume
  function_name = "${var.name}-consume-${each.key}"
  role          = aws_iam_role.function["consume-${each.key}"].arn
  package_type  = "Image"
  image_uri     = each.value
  timeout       = floor(var.queues[each.key].visibility_seconds / 6)
  memory_size   = 256
  tags          = var.tags
  environment {
    variables = merge(local.environment, {
      POSTRIDER_QUEUE              = aws_sqs_queue.events[each.key].name
      POSTRIDER_VISIBILITY_SECONDS = var.queues[each.key].visibility_seconds
    })
  }
}

resource "aws_lambda_event_source_mapping" "consume" {
  for_each         = var.functions.consume
  event_source_arn = aws_sqs_queue.events[each.key].arn
  function_name    = aws_lambda_function.consume[each.key].arn
  batch_size       = 10
  # Without it any answer is success.
  function_response_types = ["ReportBatchItemFailures"]
}

resource "aws_cloudwatch_metric_alarm" "publish_behind" {
  count               = local.publish
  alarm_name          = "${var.name}-publish-behind"
  alarm_description   = "The stream's function is behind: events are late, none is lost."
  namespace           = "AWS/Lambda"
  metric_name         = "IteratorAge"
  dimensions          = { FunctionName = aws_lambda_function.publish[0].function_name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = var.age_max_seconds * 1000
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}
